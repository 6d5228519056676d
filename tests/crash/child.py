"""What a process does until it dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg

from progressor import Client, Engine, Namespace
from progressor.deployment.standalone import (
    Standalone,
    retention_sweeper_apart,
    scanner_apart,
    zombie_collector_apart,
)
from progressor.storage import Claimed
from progressor.storage.admin import archiving, sweeps
from progressor.storage.postgres.pipeline import Session
from progressor.worker.pool import Pool
from tests.crash import points
from tests.crash.ledger import CLIENT_OPTIONS, NAMESPACE, OPTIONS, account, redo_all, use_all


def run(role: str, point: str, nth: int, dsn: str, archive: str | None = None) -> None:
    """Play a role; die where it comes to this point for the `nth` time."""
    if role == "archiver":
        _keep_small_parts()
    asyncio.run(_play(role, point, nth, dsn, archive))


async def _play(role: str, point: str, nth: int, dsn: str, archive: str | None) -> None:
    points.arm(point, nth=nth)
    match role:
        case "worker" | "writing worker" | "sending worker" | "fusing worker" | "fusing worker, at once":
            served = account(
                deposits_wait=role == "fusing worker",
                writes=role == "writing worker",
                sends=role == "sending worker",
            )
            fuse = _always_fusing(served) if role.startswith("fusing") else {}
            async with Engine(dsn, [served], zombie_collector=False, **{**OPTIONS, **fuse}):
                await asyncio.Event().wait()
        case "engine client":
            async with Engine(dsn, [account()], zombie_collector=False, **OPTIONS) as engine:
                await use_all(engine.client)
        case "fused client" | "fused client, at once" | "doubtful client" | "doubtful client, at once":
            if role.startswith("doubtful"):
                _lose_an_answer_of_a_deposit()
            options = {"fuse": "always", "zombie_collector": False, **OPTIONS}
            served = account(deposits_wait=not role.endswith("at once"))
            async with Engine(dsn, [served], **options) as engine:
                # What finds no free slot is prepared.
                while not engine.pools[NAMESPACE].is_idle:  # noqa: ASYNC110 - there is no event to wait on
                    await asyncio.sleep(0.01)
                await use_all(engine.client)
        case "client" | "redoing client":
            async with Client(dsn, **CLIENT_OPTIONS) as client:
                await {"client": use_all, "redoing client": redo_all}[role](client)
        case "scanner":
            # To it a worker lives that died before it began: so it has somebody to wake.
            async with Standalone(dsn, scanner_apart, **{**OPTIONS, "lease_age": timedelta(minutes=1)}):
                await asyncio.Event().wait()
        case "collector" | "archiver":
            apart = zombie_collector_apart if role == "collector" else retention_sweeper_apart
            async with Standalone(dsn, apart, archive=archive, **OPTIONS):
                await asyncio.Event().wait()
        case "stop":
            claimed = _stop_at_the_first_claim()
            async with Engine(dsn, [account()], zombie_collector=False, **OPTIONS):
                await claimed.wait()


def _always_fusing(served: Namespace) -> dict[str, Any]:
    """Its functions have run before, for the first run of a timer is not fused."""
    for function in served.functions:
        if function.profile is not None:
            function.profile.was_run = True
    return {"fuse": "always"}


def _lose_an_answer_of_a_deposit() -> None:
    """A flight is committed, and does not hear of it."""
    commit, lost = Session.commit, False

    async def losing_commit(self: Session, statements: Any, hints: Any = None) -> Any:
        nonlocal lost
        told = await commit(self, statements, hints)
        # A start has one statement more.
        is_deposit = not statements.keys().isdisjoint(("fused_save_timeless", "fused_run"))
        if not lost and is_deposit and "one_life" not in statements:
            lost = True
            raise psycopg.OperationalError("the connection was lost at COMMIT")
        return told

    Session.commit = losing_commit  # type: ignore[method-assign]


def _keep_small_parts() -> None:
    """A part of the archive has two processes, and each is deleted in a transaction of its own."""
    vars(sweeps)["_LOOKS"] = 1
    vars(archiving)["_LOOKS"] = 2


def _stop_at_the_first_claim() -> asyncio.Event:
    """The stop comes while a claim is under way: what it brings must be handed back."""
    claimed, run = asyncio.Event(), Pool.run

    def stopping_run(self: Pool, held: Claimed) -> None:
        self.is_open = False
        claimed.set()
        run(self, held)

    Pool.run = stopping_run  # type: ignore[method-assign]
    return claimed
