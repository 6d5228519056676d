"""Storage: one public method is one verb and one transaction, over a list of items.

Rule: every transaction that changes anything of a process first locks the rows of its processes, in the
order of their numbers, in a statement of its own (`lock`); claims skip what is locked. Only requests know
a process by its name; everything else means one life of it, by its number. All inputs of an operation (ids,
leases, now) are fixed before its first try, so it can be repeated after a lost connection, a deadlock or
a serialization failure: it then finds its own earlier success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TypedDict, Unpack

from progressor import metrics
from progressor.acts import Act, Deed
from progressor.config import NO_RATES, Rates
from progressor.model import Life
from progressor.storage.admin.archiving import Archiving
from progressor.storage.admin.audit import acted, noting, noting_requests
from progressor.storage.admin.bulks import Bulks
from progressor.storage.admin.leftovers import Leftovers
from progressor.storage.admin.namespaces import Oversight
from progressor.storage.admin.reencoding import Reencoding
from progressor.storage.admin.subscriptions import Subscriptions
from progressor.storage.admin.tokens import TokenStatements
from progressor.storage.admin.transfers import Transfers
from progressor.storage.feed.appending import FeedLetter, feeding_processes
from progressor.storage.params import (
    import_columns,
    key_columns,
    life_columns,
    rate_params,
    redo_columns,
    request_columns,
    task_key_columns,
)
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.storage.postgres.retry import Apart, Saves, Trying, always, as_one, damage, never, one_item
from progressor.storage.postgres.session_setup import BRIEFLY
from progressor.storage.postgres.sqlstates import BatchRefused, Unreadable
from progressor.storage.rows import grouped, is_gone, outcomes_of, prepared_of, standing_of, started_of
from progressor.storage.statements import REDO, Params, Row, lock_by_name
from progressor.storage.steps.claims import outcome_if_unreadable
from progressor.storage.steps.fused import CALLS, INITS, FusedFlight
from progressor.storage.steps.held import HeldTasks
from progressor.storage.steps.save import save
from progressor.storage.steps.zombies import (
    BurialRound,
    Stranded,
    cancel_stranded,
    collect,
    collected,
    evidence_columns,
)
from progressor.storage.values import (
    ROOM,
    Claimed,
    Continue,
    Evidence,
    Import,
    LostLease,
    Prepared,
    Removed,
    Request,
    Saved,
    Step,
    TaskKey,
    TaskOutcome,
    TaskRef,
    Zombie,
    most_cancelled,
)


class Batched(TypedDict, total=False):
    """The keywords of operations that accept requests; `tried`: each was tried before, in a batch."""

    hints: Hints | None
    tried: bool
    now: datetime | None


def _trying(
    tried: bool, *, alone: Apart, patience: float | None, holds: Callable[[], bool] = never
) -> Trying:
    """Return how a batch is tried; or one of its items once more, whose errors `alone` tells apart."""
    apart, saves = (alone, Saves.ONE) if tried else (one_item, Saves.BATCH)
    return Trying(patience=patience, holds=holds, apart=apart, saves=saves)


class Storage(
    Archiving, Bulks, Leftovers, Oversight, Reencoding, Subscriptions, Transfers, TokenStatements, HeldTasks
):
    """The operations on processes.

    An operation that puts tasks into a worker's hands, or takes them out, is repeated for as long as it
    takes: a lost answer must not leave a task running that nobody runs. Any other is repeated for
    `patience`, then it raises StorageUnavailable.

    Requests and steps come in batches: BatchRefused if one item may keep the others waiting. Then each is
    to be `tried` alone: it may have been committed, and holds no connection while it waits for a lock.
    """

    def _patience_for(self, requests: Sequence[Request]) -> float | None:
        # A task that may have been committed into this worker's hands must not be forgotten.
        return None if any(each.worker_id is not None for each in requests) else self._patience

    async def prepare_init(
        self,
        requests: Sequence[Request],
        *,
        hints: Hints | None = None,
        tried: bool = False,
        now: datetime | None = None,
    ) -> list[Prepared]:
        """Create processes, each with its init task. One item per process in a batch."""

        # Kept over all tries: a task that was committed into a worker's hands must not be lost with the
        # others.
        found: dict[int, Prepared] = {}

        def holds() -> bool:
            return any(isinstance(result, Continue) for result in found.values())

        async def attempt(session: Session, _again: bool) -> list[Prepared]:
            left = [place for place in range(len(requests)) if place not in found]
            while left:
                params = {**request_columns([requests[place] for place in left]), "now": now}
                waiting = BRIEFLY if tried else {}
                statements = {**waiting, "prepare_init": params, "one_life": params}
                results = await session.transact(statements, hints)
                for row in results["prepare_init"]:
                    place = left[row["ord"] - 1]
                    found[place] = started_of(requests[place], row)
                left = [place for place in left if place not in found]
                if left:
                    # The others were there before, or an earlier try of this operation made them.
                    others = [requests[place] for place in left]
                    results = await session.transact({"started": request_columns(others)})
                    for place, row in zip(left, results["started"], strict=True):
                        if not is_gone(row):
                            found[place] = prepared_of(requests[place], row)
                    # A process that was in the way is gone by now, with its answers: try again.
                    left = [place for place in left if place not in found]
            return [found[place] for place in range(len(requests))]

        how = _trying(tried, alone=as_one, patience=self._patience_for(requests), holds=holds)
        return await self._run("prepare_init", attempt, **how)

    async def _prepare(
        self,
        verb: str,
        requests: Sequence[Request],
        names: Sequence[str],
        columns: Params,
        *,
        outcome: str,
        hints: Hints | None = None,
        tried: bool = False,
        now: datetime | None = None,
    ) -> list[Prepared]:
        """Run the statements of these names; that of `outcome` returns a row for each request."""
        params, waiting = {**columns, "now": now}, BRIEFLY if tried else {}
        whole = {**waiting, **dict.fromkeys(names, params), **noting_requests(requests, now)}
        how = _trying(tried, alone=damage, patience=self._patience_for(requests))
        try:
            results = await self._transact(verb, whole, hints=hints, **how)
        except (Unreadable, BatchRefused) as error:
            if len(requests) > 1 or (isinstance(error, BatchRefused) and not tried):
                raise
            return [await outcome_if_unreadable(self._until_done, requests[0], error, self._unread)]
        return [prepared_of(request, row) for request, row in zip(requests, results[outcome], strict=True)]

    async def prepare_call(self, requests: Sequence[Request], **sent: Unpack[Batched]) -> list[Prepared]:
        """Append calls and notifies to mailboxes; its timers are blocked behind them."""
        names = (lock_by_name(len(requests)), "prepare_call")
        columns = request_columns(requests)
        return await self._prepare("prepare_call", requests, names, columns, outcome="prepare_call", **sent)

    async def redo(self, requests: Sequence[Request], **sent: Unpack[Batched]) -> list[Prepared]:
        """Append ended calls and notifies to mailboxes again, with the values that are stored."""
        columns = redo_columns(requests)
        return await self._prepare("redo", requests, REDO, columns, outcome="prepare_call", **sent)

    async def prepare_repair(self, requests: Sequence[Request], **sent: Unpack[Batched]) -> list[Prepared]:
        """Begin the repair of broken processes."""
        names = (lock_by_name(len(requests)), "prepare_repair", "prepared")
        columns = request_columns(requests)
        return await self._prepare("prepare_repair", requests, names, columns, outcome="prepared", **sent)

    async def simple_repair(self, requests: Sequence[Request], **sent: Unpack[Batched]) -> list[Prepared]:
        """Put broken processes back to running without a handler; the outcome is a final duplicate."""
        names = (lock_by_name(len(requests)), "simple_repair", "feed_processes", "prepared")
        columns = {**request_columns(requests), "kind": FeedLetter.REPAIRED, "process_no": None}
        return await self._prepare("simple_repair", requests, names, columns, outcome="prepared", **sent)

    def fused_call(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> AbstractAsyncContextManager[FusedFlight]:
        """Open a transaction that accepts calls, whose handlers run in it, and saves them.

        Doubtful if PostgreSQL or the connection failed: preparing the requests finds what was committed.
        BatchRefused if a lock was waited for in vain.
        """
        return self._flight(lambda session: FusedFlight(session, CALLS, requests, now), is_batch=True)

    def fused_init(
        self, requests: Sequence[Request], *, now: datetime | None = None
    ) -> AbstractAsyncContextManager[FusedFlight]:
        """Open a transaction that accepts starts; as `fused_call`."""
        return self._flight(lambda session: FusedFlight(session, INITS, requests, now), is_batch=True)

    async def save_result(
        self,
        steps: Sequence[Step],
        *,
        hints: Hints | None = None,
        now: datetime | None = None,
        tried: bool = False,
    ) -> list[Saved | LostLease]:
        """End steps and hand out their continuations; at most one item per process in a batch."""
        attempt = partial(save, steps=steps, hints=hints, now=now, tried=tried)
        how = _trying(tried, alone=as_one, patience=None, holds=always)
        return await self._run("save_result", attempt, **how)

    async def saved_before(self, step: Step) -> Saved | LostLease:
        """Return the outcome of a step whose COMMIT had no answer; LostLease if nothing was committed."""
        params = {**task_key_columns([step.task]), "now": None}
        # The lock waits for a COMMIT that is still under way.
        results = await self._until_done("saved", {"lock": params, "saved": params})
        return outcomes_of([step], results)[0]

    async def next_task(self, process_no: int) -> int | None:
        """Return the first request in a mailbox, if it can be claimed; its claim checks that again."""
        rows = await self._rows("next_task", process_no=process_no)
        return rows[0]["task_id"] if rows else None

    async def capture_task(
        self,
        ref: TaskRef,
        *,
        worker_id: int,
        lease: int,
        rates: Rates = NO_RATES,
        now: datetime | None = None,
    ) -> Claimed | None:
        """Claim one task by id, if it is the next of its process and, if it is a timer, due."""
        params = {"namespace": ref.namespace, "worker_id": worker_id, "lease": lease, "now": now}
        params |= {"process_no": ref.process_no, "task_id": ref.task_id, **rate_params(rates)}
        return next(iter(await self._claim("capture_task", params, ROOM)), None)

    async def collect_zombies(
        self,
        evidence: Evidence,
        *,
        lease_age: timedelta,
        grace: timedelta,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> list[Zombie]:
        """End the running tasks of workers that were silent for a lease, and those that ran too long.

        Too long is step_timeout + `grace`. All of them as of `evidence.at`, so a late repetition finds no
        more than the first try would have. StorageUnavailable if no step could be saved just now, because a
        table that steps write to is locked. A zombie that PostgreSQL refuses to change is logged and left
        out.
        """
        params = {**evidence_columns(evidence, lease_age), "grace": grace, "limit": limit}

        async def carry(params: Params) -> BurialRound:
            attempt = partial(collect, params=params, now=now)
            return await self._run("collect_zombies", attempt)

        def pass_over(zombie: Row, error: Exception) -> None:
            metrics.ZOMBIES_REFUSED.inc()
            self._unread.log("zombie cannot be collected", zombie, error)

        return await collected(carry, params, pass_over)

    async def cancel_stranded(
        self, after: tuple[int, datetime, int], *, now: datetime | None = None
    ) -> Stranded:
        """Cancel the next piece of stranded requests, which wait on a process that broke."""
        attempt = partial(cancel_stranded, after=after, now=now)
        return await self._run("cancel_stranded", attempt)

    async def drop_workers(self, evidence: Evidence, *, lease_age: timedelta) -> None:
        """Forget workers that died without leaving, once none of their tasks runs."""
        await self._rows("drop_workers", **evidence_columns(evidence, lease_age))

    async def remove(
        self,
        namespace: str,
        process_id: str,
        life: Life | None = None,
        *,
        act: Act | None = None,
        now: datetime | None = None,
    ) -> Removed:
        """Remove a process at once, this life of it if one is given; a step that runs on it is fenced off.

        A large process leaves rows that nobody sees; `drop_leftovers` deletes them.
        """
        if life is None:
            found = await self._rows("find_process", namespace=namespace, process_id=process_id)
            if not found:
                return Removed(False, ())
            life = Life(**found[0])
        # Each try ends this life alone: a promoted server may have given its number to another one.
        params = {**life_columns(life), "most": most_cancelled(1), "now": now}
        statements = dict.fromkeys(("lock", "remove"), params)
        deed = Deed(namespace, process_id)

        async def attempt(session: Session, again: bool) -> Removed:
            results = await acted(
                session, statements, act, lambda found: deed if found["lock"] else None, now=now
            )
            cancelled = grouped(results["remove"], {life.process_no: namespace})
            # It may have ended since it was found; in a repetition, perhaps by our own first try.
            return Removed(bool(results["lock"]) or again, cancelled.get(life.process_no, ()))

        return await self._run("remove", attempt)

    async def put(
        self, item: Import, *, act: Act | None = None, now: datetime | None = None
    ) -> bool | None:
        """Import a process with its history and timers; return False if the id is taken.

        None if no worker ever served its namespace, or it was retired since.
        """
        params = {**import_columns(item), "now": now}

        async def attempt(session: Session, again: bool) -> bool | None:
            async with session.transaction():
                (row,) = (await session.transact({"put_process": params}))["put_process"]
                made = row["process_no"] is not None
                if made:
                    numbered = {**params, **row}
                    timers = {"put_timers": numbered} if item.timers else {}
                    noted = noting(act, Deed(item.namespace, item.process_id), now=now)
                    fed = feeding_processes(FeedLetter.CREATED, [row["process_no"]], now=now)
                    await session.transact({"put_events": numbered, **timers, **noted, **fed})
            if again and not made:
                # The id is taken, perhaps by our own first try.
                made = bool((await session.transact({"put_own": params}))["put_own"])
            return True if made else False if row["is_served"] else None

        return await self._run("put", attempt)

    async def replies(self, keys: Sequence[TaskKey]) -> list[TaskOutcome]:
        """Return the outcomes of the first of these tasks: one at least, and as many as have room.

        The caller asks again for the others. BatchRefused if perhaps one of them cannot be read.
        """
        params = {**key_columns(keys), "bytes": ROOM}
        apart = damage if len(keys) == 1 else one_item
        results = await self._transact("replies", {"replies": params}, apart=apart)
        return [standing_of(row) for row in results["replies"]]
