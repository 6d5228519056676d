"""Defects, built into this process on purpose: the harness must find each of them.

Rule: nothing of this is in the product. A defect edits statements and functions of a child process.
"""

# ruff: noqa: SLF001 - a defect is built into the inside of things

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

from progressor.node.replies import Replies
from progressor.services.scanner import Scanner
from progressor.storage.operations import Storage
from progressor.storage.own_sql.drivers import AsyncDriver, BlockingDriver, Marked
from progressor.storage.statements import SAVES, STATEMENTS
from progressor.storage.values import Step, TaskOutcome, TaskRef
from progressor.worker.pool import Pool
from progressor.worker.worker import Worker

DEFECTS = {
    "fence": "results are saved whether or not the worker still holds the task",
    "early-reply": "callers are answered before the commit",
    "hasty-judge": "collectors go by the age of a heartbeat alone, whether or not writes get through",
    "number": "answers and removals go by numbers alone, which a promoted or restored server gives again",
    "apart": "the rows that handlers write are committed before their steps are saved",
    "crowd": "claims in a group do not wait for each other, so two of them fill the same room",
    "no-scan": "NOTIFY alone wakes workers and callers: no scan, no poll, and hints are lost",
}

# Some that are in a client too: the branch's are of the run's own process.
OF_CLIENTS = frozenset({"number"})

_FENCE = re.compile(
    r"\bCROSS (JOIN LATERAL \([^()]+\bFROM progressor\.running AS r\s+WHERE\s+"
    r"r\.process_no = i\.process_no)\s+AND r\.task_id = i\.task_id AND r\.lease = i\.lease"
    r"(?:\s+--[^\n]*)*\s+AND r\.worker_id IS NOT DISTINCT FROM i\.worker_id(\s+OFFSET 0\s+\) AS r)"
)
# What is random of a row, beside its numbers.
_IDENTITY = re.compile(
    r"(?:coalesce\([^()]+\)|\w+\.\w+) IS NOT DISTINCT FROM i\.(?:birth|idempotency_key|request_hash)"
)


def build_in(defect: str) -> None:
    """Make this process defective."""
    _BUILDERS[defect]()


def _remove_fence() -> None:
    for verb in (*SAVES, "cancel_waiting"):
        STATEMENTS[verb], found = _FENCE.subn(r"LEFT \1\2 ON TRUE", STATEMENTS[verb])
        if found != 1:
            raise RuntimeError(f"{verb}: {found} fences found, not 1")


def _go_by_number() -> None:
    for verb in ("replies", "remove"):
        STATEMENTS[verb], found = _IDENTITY.subn("TRUE", STATEMENTS[verb])
        if not found:
            raise RuntimeError(f"{verb}: no identity found")


def _judge_hastily() -> None:
    sql = STATEMENTS["find_zombies"]
    for text, hasty in (
        ("%(at)s::timestamptz", "clock_timestamp()"),
        ("%(since)s::timestamptz", "'-infinity'::timestamptz"),
        ("    FOR NO KEY UPDATE OF w SKIP LOCKED\n", ""),
    ):
        if text not in sql:
            raise RuntimeError(f"find_zombies: no {text!r} found")
        sql = sql.replace(text, hasty)
    STATEMENTS["find_zombies"] = sql


def _reply_early() -> None:
    save = Worker._save

    async def hasty(self: Worker, step: Step) -> Any:
        ref = TaskRef.of(step.task, step.process)
        self._replies.resolve(ref, TaskOutcome.of(step.decision.reply))
        return await save(self, step)

    Worker._save = hasty  # type: ignore[method-assign]


def _commit_apart() -> None:
    check, check_blocking = AsyncDriver.check, BlockingDriver.check

    async def hasty(self: AsyncDriver, given: Marked) -> None:
        await check(self, given)
        await self.execute("COMMIT")
        await self.execute("BEGIN")

    def hasty_blocking(self: BlockingDriver, given: Marked) -> None:
        check_blocking(self, given)
        self.execute("COMMIT")
        self.execute("BEGIN")

    AsyncDriver.check = hasty  # type: ignore[method-assign]
    BlockingDriver.check = hasty_blocking  # type: ignore[method-assign]


def _crowd_in() -> None:
    lock = "FOR NO KEY UPDATE OF g"
    if lock not in STATEMENTS["lock_groups"]:
        raise RuntimeError(f"lock_groups: no {lock!r} found")
    STATEMENTS["lock_groups"] = STATEMENTS["lock_groups"].replace(lock, "")


def _scan_never() -> None:
    async def nothing(_self: Scanner) -> timedelta | None:
        return None

    async def no_poll(_self: Replies) -> None:
        await asyncio.Event().wait()

    async def lost(_self: Storage, _hints: Any) -> None:
        return

    Scanner.run_once = nothing  # type: ignore[method-assign]
    Replies._poll = no_poll  # type: ignore[method-assign]
    Storage.notify = lost  # type: ignore[method-assign]
    Pool._jittered_poll = lambda _self: 1e6  # type: ignore[method-assign]


_BUILDERS = {
    "fence": _remove_fence,
    "early-reply": _reply_early,
    "hasty-judge": _judge_hastily,
    "number": _go_by_number,
    "apart": _commit_apart,
    "crowd": _crowd_in,
    "no-scan": _scan_never,
}
