"""Faults that lose commits, and what they excuse."""

from __future__ import annotations

from benchmarks.chaos.ledger import ACCOUNTS, STEADY
from benchmarks.chaos.losses import Lost

DONE = ("finished", b'{"nonce": "n"}')
WAITING = ("waiting", None)


def test_what_a_copy_does_not_have_is_lost() -> None:
    """Requests that it has not at all, or not so far; processes; and steps of the steady worker."""
    lost = Lost()
    has = [(ACCOUNTS, "a", "both", *DONE, 1), (ACCOUNTS, "a", "behind", *WAITING, 2)]
    had = [
        (ACCOUNTS, "a", "both", *DONE, 1),
        (ACCOUNTS, "a", "behind", *DONE, 2),
        (ACCOUNTS, "b", "gone", *WAITING, 3),
        (STEADY, "s", "4", "finished", None, 4),
    ]
    assert lost.take(has, had) == {"s"}
    assert lost.keys == {("a", "behind"), ("b", "gone"), ("s", "4")}
    assert dict(lost.answers) == {("a", "behind"): [{"nonce": "n"}]}
    assert lost.processes == {"b", "s"}
