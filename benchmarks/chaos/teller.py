"""The client under faults: carries out errands, and resumes those that its killed predecessor left open.

Rule: an errand's keys follow from its id, so whoever resumes it asks for the same things. It asks again
under the same key until there is an answer, whatever happens to connections, servers and itself.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from benchmarks.chaos.asking import Caller
from benchmarks.chaos.journal import Journal, Record, read
from benchmarks.chaos.ledger import ACCOUNTS, OPENING_BALANCE, RECEIPTS, SHARED_ACCOUNTS
from benchmarks.chaos.limits import COOK_PROCESSES, COOKS
from progressor import Client, HistoryRange, ProcessNotFound

_TELLERS = 8
_ERRANDS = {"transfer": 65, "note": 15, "receipt": 10, "open": 5, "stir": 5}
_MOST_OWN_ACCOUNTS = 12
_REPLY_SECONDS = 3.0
# How often an answer is held against what everybody can read at that moment.
_LOOKS = 0.3
_LOOK_BACK = HistoryRange(limit=300, direction="backward")


class Tellers:
    """Several errands at a time over one client; `stop` lets them finish."""

    def __init__(self, client: Client, path: Path, *, name: str, seed: int) -> None:
        past = read(path)
        self._client = client
        self._journal = Journal(path)
        self._births = sum(record["do"] == "born" for record in past)
        self._name = name
        self._random = random.Random(f"{seed} {name} {self._births}")
        done = {record["id"] for record in past if record["do"] == "done"}
        self._left = [r for r in past if r["do"] == "errand" and r["id"] not in done]
        asked = (record["key"] for record in past if record["do"] == "ask")
        self._caller = Caller(client, self._journal, reply=_REPLY_SECONDS, asked=asked)
        self._own = [
            record["account"]
            for record in past
            if record["do"] == "errand" and record["kind"] == "open" and record["id"] in done
        ]
        self._opened = sum(r["do"] == "errand" and r["kind"] == "open" for r in past)
        self._number = 0
        self._stopping = False

    def stop(self) -> None:
        """No new errands."""
        self._stopping = True

    async def run(self, *, skew: float) -> None:
        """Until stopped and all errands are done."""
        await self._journal.add(do="born", skew=skew)
        await asyncio.gather(*(self._run(place) for place in range(_TELLERS)))
        await self._journal.add(do="end")

    async def _run(self, place: int) -> None:
        for errand in self._left[place::_TELLERS]:
            await self._carry_out(errand)
        while not self._stopping:
            errand = self._errand()
            await self._journal.add(**errand)
            await self._carry_out(errand)

    def _errand(self) -> Record:
        self._number += 1
        errand = {"do": "errand", "id": f"{self._name}.{self._births}.{self._number}"}
        kind = self._random.choices(list(_ERRANDS), list(_ERRANDS.values()))[0]
        if kind == "open" and self._opened < _MOST_OWN_ACCOUNTS:
            self._opened += 1
            return errand | {"kind": "open", "account": f"{self._name}-{self._opened}"}
        if kind == "stir":
            return errand | {"kind": "stir", "cook": self._random.choice(list(COOK_PROCESSES))}
        accounts = [*SHARED_ACCOUNTS, *self._own]
        if kind in ("note", "receipt"):
            return errand | {"kind": kind, "account": self._random.choice(accounts)}
        source, target = self._random.sample(accounts, 2)
        amount = self._random.randint(1, 80)
        return errand | {"kind": "transfer", "from": source, "to": target, "amount": amount}

    async def _carry_out(self, errand: Record) -> None:
        match errand["kind"]:
            case "transfer":
                await self._transfer(errand)
            case "note":
                await self._ask(f"{errand['id']}:n", "notify", errand["account"], "note", None)
            case "stir":
                await self._ask(f"{errand['id']}:s", "notify", errand["cook"], "stir", None, of=COOKS)
            case "receipt":
                args = {"for": errand["account"]}
                await self._ask(f"{errand['id']}:r", "start", errand["id"], None, args, of=RECEIPTS)
            case "open":
                args = {"balance": OPENING_BALANCE}
                if await self._ask(f"{errand['id']}:o", "start", errand["account"], None, args):
                    self._own.append(errand["account"])
        await self._journal.add(do="done", id=errand["id"])

    async def _transfer(self, errand: Record) -> None:
        args, deposit = {"amount": errand["amount"]}, f"{errand['id']}:d"
        # What a predecessor began is ended, though the withdrawal was lost since, and is refused now.
        began = self._caller.has_asked(deposit)
        if await self._ask(f"{errand['id']}:w", "call", errand["from"], "withdraw", args) or began:
            await self._ask(deposit, "call", errand["to"], "deposit", args)

    async def _ask(
        self, key: str, verb: str, subject: str, name: str | None, args: Any, *, of: str = ACCOUNTS
    ) -> Any:
        """The answer, or None if it was refused."""
        answer = await self._caller.ask(key, verb, of, subject, name, args)
        if answer is not None and of == ACCOUNTS and self._random.random() < _LOOKS:
            await self._look(key, subject, answer)
        return answer

    async def _look(self, key: str, account: str, answer: Any) -> None:
        """What was answered is there for everybody."""
        try:
            process = await self._caller.persistently(
                key, lambda: self._client.get(ACCOUNTS, account, range=_LOOK_BACK, timeout=_REPLY_SECONDS)
            )
        except ProcessNotFound:
            nonces, first = set(), 1
        else:
            first = process.first_event_id
            nonces = {event.payload["nonce"] for event in process.history}
        await self._journal.add(
            do="seen" if answer["nonce"] in nonces else "unseen", key=key, answer=answer, first=first
        )
