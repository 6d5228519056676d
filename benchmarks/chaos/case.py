"""The case that checks look at: the clients' records, the server's books, and what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from benchmarks.chaos.evidence import Account, Asked, Books, Clients
from benchmarks.chaos.ledger import ACCOUNTS
from benchmarks.chaos.losses import Lost


@dataclass(frozen=True, slots=True)
class Case:
    """What the checks look at."""

    clients: Clients
    books: Books
    lost: Lost
    began: datetime
    ended: datetime

    def requests(self) -> Iterator[tuple[Asked, Account]]:
        """Every request to an account, with the account."""
        for asked in self.clients.asked.values():
            if asked.namespace == ACCOUNTS and asked.process in self.books.accounts:
                yield asked, self.books.accounts[asked.process]

    def is_lost(self, asked: Asked) -> bool:
        """Whether it was committed once, by a server whose place was taken by one that had it not."""
        return (asked.process, asked.key) in self.lost.keys

    def was_given(self, asked: Asked, answer: object) -> bool:
        """Whether it is the answer of this very request, committed and lost since."""
        return answer in self.lost.answers.get((asked.process, asked.key), ())
