"""One run: start everything, inject faults, let it settle, and check."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.chaos import checks, walks
from benchmarks.chaos.asking import Caller
from benchmarks.chaos.case import Case
from benchmarks.chaos.defects import OF_CLIENTS, build_in
from benchmarks.chaos.evidence import Books, Clients, came, read_books
from benchmarks.chaos.faults import WEIGHTS, Faults
from benchmarks.chaos.follower import Follower
from benchmarks.chaos.idler import Idler, lags, shown
from benchmarks.chaos.journal import Journal
from benchmarks.chaos.ledger import (
    ACCOUNTS,
    BRANCH,
    CLIENT_OPTIONS,
    LEASE_SECONDS,
    OPENING_BALANCE,
    RECEIPT_LIFE,
    RECEIPTS,
    SHARED_ACCOUNTS,
    STEADY,
    STEADY_PROCESSES,
    TENANTS,
)
from benchmarks.chaos.limits import COOK_PROCESSES, COOKS, METER_PROCESSES, METERS, Crowds
from benchmarks.chaos.losses import Losses
from benchmarks.chaos.parts import Place
from benchmarks.chaos.proxy import Proxy
from benchmarks.chaos.readers import SUBSCRIPTION, read_deliveries
from benchmarks.chaos.recovery import recoveries
from benchmarks.chaos.report import Report, Verdict
from benchmarks.chaos.server import Server, now, settled
from benchmarks.chaos.supervisor import Member
from benchmarks.chaos.tallies import PROJECTION
from progressor import Client, ProgressorError
from progressor.storage.doctor import examine

_UNSETTLED = """
SELECT (SELECT count(*) FROM progressor.schedule) + (SELECT count(*) FROM progressor.running) + (
    SELECT count(*) FROM progressor.processes JOIN progressor.namespaces USING (namespace_no)
    WHERE name = 'chaos.receipt'
)
"""
_STUCK = """
SELECT n.name, p.process_id, s.task_id, s.task_type, s.does
FROM (
    SELECT process_no, task_id, task_type, 'waits' AS does FROM progressor.schedule
    UNION ALL SELECT process_no, task_id, task_type, 'runs' FROM progressor.running
) AS s
LEFT JOIN progressor.processes AS p USING (process_no)
LEFT JOIN progressor.namespaces AS n USING (namespace_no)
ORDER BY 1, 2, 3 LIMIT 20
"""
# Slices whose readers have not come to the end of the feed, and rows that nobody has read.
_UNREAD = """
SELECT (SELECT count(*) FROM progressor.feed WHERE position IS NULL) + (
    SELECT count(*)
    FROM progressor.subscription_slices AS s
    CROSS JOIN progressor.feed_head AS h
    WHERE s.position <> h.position OR s.walk IS NOT NULL
)
"""
_WORKING_TIME = 2.0
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """How long, how hard, with which numbers and which defect."""

    seconds: float
    seed: int = 1
    pause: float = 1.0
    settle: float = 60.0
    kinds: Sequence[str] = tuple(WEIGHTS)
    least: int = 0
    defect: str | None = None


class Run:
    """The processes of a run, and what is learned from them."""

    def __init__(self, server: Server, proxy: Proxy, home: Path, options: Options) -> None:
        self._server = server
        self._options = options
        self._proxy = proxy
        self._home = home
        self._place = Place(home)
        self._journal = home / "bank.jsonl"
        self._losses = Losses(server, proxy, home / "branch.jsonl")
        self._crowds = Crowds(server)
        self._follower = Follower(server.role_dsn)
        self._idler = Idler(server)
        self._stuck: list[str] = []
        far, near = server.proxied(proxy.port), server.role_dsn
        self._workers = [
            self._member("worker-1", "worker", far),
            self._member("worker-2", "worker", near, skewed=True),
            self._member("steady", "steady", near),
            self._member("scanner", "scanner", near),
            self._member("collector", "collector", far),
        ]
        self._readers = [self._member("reader-1", "reader", far), self._member("reader-2", "reader", near)]
        self._clients = [
            self._member("client", "client", far, skewed=True),
            self._member("client-with-workers", "engine", near),
        ]

    def _member(self, name: str, role: str, dsn: str, *, skewed: bool = False) -> Member:
        return Member(
            name,
            role,
            dsn,
            home=self._home,
            seed=self._options.seed,
            defect=self._options.defect,
            skewed=skewed,
            archive=str(self._place.path),
        )

    @property
    def _members(self) -> list[Member]:
        return [*self._workers, *self._readers, *self._clients]

    async def carry_out(self) -> Report:
        """The whole run."""
        began = now()
        archive = str(self._place.path)
        async with AsyncExitStack() as opened:
            bank = await opened.enter_async_context(
                Client(self._server.dsn, archive=archive, **CLIENT_OPTIONS)
            )
            await opened.enter_async_context(self._idler.idling())
            await opened.enter_async_context(self._follower.following())
            try:
                await self._open(bank)
                async with self._crowds.watched():
                    faults = await self._strike()
                    calm = now()
                    took = await self._settle(bank)
            finally:
                await asyncio.gather(*(member.kill() for member in self._members))
            ended = now()
            books = await self._read_books(bank)
        case = Case(self._records(), books, self._losses.lost, began, ended)
        return self._report(
            case, faults, {**self._figures(case, faults, took), **self._of_readers(case, faults, calm)}
        )

    async def _strike(self) -> Faults:
        options = self._options
        faults = Faults(
            self._server,
            self._proxy,
            self._members,
            self._losses,
            self._place,
            kinds=options.kinds,
            least=options.least,
            seed=options.seed,
            pause=options.pause,
        )
        await faults.run(options.seconds)
        return faults

    async def _read_books(self, bank: Client) -> Books:
        deliveries = read_deliveries(member.journal for member in self._readers)
        accounts = self._records().accounts
        spans = self._idler.spans
        return await read_books(
            bank, self._server, self._place, accounts, self._crowds, self._follower, deliveries, spans
        )

    def _report(self, case: Case, faults: Faults, figures: Mapping[str, object]) -> Report:
        options = self._options
        verdicts = [
            Verdict(check.__name__.replace("_", " "), str(check.__doc__), list(check(case)))
            for check in checks.CHECKS
        ]
        settle = f"Without any help everything comes to its end within {options.settle:g} s."
        verdicts.append(Verdict("settled", settle, self._stuck))
        verdicts.append(Verdict("doctor", "The invariants of the tables hold.", self._doctor()))
        report = Report(
            seconds=options.seconds,
            seed=options.seed,
            defect=options.defect,
            verdicts=verdicts,
            recoveries=recoveries(faults.done, case.books.tasks),
            figures=figures,
        )
        if not report.holds:
            report.last_words = {member.name: member.last_words() for member in self._members}
        return report

    def _records(self) -> Clients:
        journals = [self._journal, self._losses.journal, *(member.journal for member in self._clients)]
        return Clients(journals)

    async def _open(self, bank: Client) -> None:
        """Workers first, then the accounts that all clients use, then the clients."""
        for member in (*self._workers, *self._readers):
            member.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._served(bank)
        except TimeoutError:
            words = "\n".join(line for member in self._workers for line in member.last_words())
            raise RuntimeError(f"no worker in {_START_SECONDS:g} s:\n{words}") from None
        await walks.begin(bank)
        for name in STEADY_PROCESSES:
            await bank.start(STEADY, name)
        for tenant, limit in TENANTS.items():
            await bank.set_group_limit(COOKS, tenant, limit)
        for name in METER_PROCESSES:
            await bank.start(METERS, name)
        for name, tenant in COOK_PROCESSES.items():
            await bank.start(COOKS, name, {"tenant": tenant})
        caller = Caller(bank, Journal(self._journal), reply=_START_SECONDS)
        args = {"balance": OPENING_BALANCE}
        for account in (*SHARED_ACCOUNTS, BRANCH):
            await caller.ask(f"bank:{account}", "start", ACCOUNTS, account, args=args)
        for member in self._clients:
            member.start()
        await asyncio.sleep(_WORKING_TIME)

    async def _served(self, bank: Client) -> None:
        """Return when all is served; who reads from the beginning gets all only before walks begin."""
        wanted = {ACCOUNTS, RECEIPTS, STEADY, METERS, COOKS, SUBSCRIPTION, PROJECTION}
        there: set[str] = set()
        while not wanted <= there:
            await asyncio.sleep(0.1)
            there = {*(await bank.health()).namespaces, *(each.name for each in await bank.subscriptions())}

    async def _settle(self, bank: Client) -> float:
        """No more faults: clients finish, accounts are closed, receipts go, and nothing is left."""
        loop = asyncio.get_running_loop()
        began, bound = loop.time(), self._options.settle
        ended = await asyncio.gather(*(member.retire(seconds=bound) for member in self._clients))
        for member, in_order in zip(self._clients, ended, strict=True):
            if not in_order:
                self._stuck.append(f"{member.name} did not get all of its answers in {bound:g} s")
        await self._close(bank, bound)
        quiet = RECEIPT_LIFE.total_seconds() + 2 * LEASE_SECONDS
        _, left = await settled(self._server, _UNSETTLED, bound=max(quiet, began + bound - loop.time()))
        if left:
            for namespace, process_id, task_id, kind, does in self._server.query(_STUCK):
                self._stuck.append(f"{namespace}/{process_id}: task {task_id} ({kind}) {does}")
        # A slow machine's first walks may come as late as this.
        archived = list(walks.ARCHIVED)
        await settled(self._server, walks.UNWALKED, archived, archived, bound=bound)
        _, left = await settled(self._server, _UNREAD, bound=bound)
        if left:
            self._stuck += [
                f"{known.name}: {known}" for known in await bank.subscriptions() if known.behind
            ]
        return loop.time() - began

    async def _close(self, bank: Client, bound: float) -> None:
        caller = Caller(bank, Journal(self._journal), reply=min(bound, 30))

        async def rest(namespace: str, name: str) -> None:
            with contextlib.suppress(ProgressorError):
                # One that broke is what its check looks for.
                await bank.call(namespace, name, "close", timeout=min(bound, 30))

        steady = await bank.search(namespace=STEADY)
        resting = [(STEADY, item.process_id) for item in steady.items]
        resting += [(METERS, name) for name in METER_PROCESSES]
        resting += [(COOKS, name) for name in COOK_PROCESSES]
        await asyncio.gather(*(rest(*each) for each in resting))
        with contextlib.suppress(TimeoutError):
            # Who has no answer by then is found by a check.
            async with asyncio.timeout(bound):
                await asyncio.gather(
                    *(
                        caller.ask(f"bank:close:{name}", "call", ACCOUNTS, name, "close")
                        for name in self._records().accounts
                    )
                )

    def _doctor(self) -> list[str]:
        return [
            f"{invariant.name}: {finding.namespace}/{finding.process_id} {finding.task_id}: {finding.found}"
            for invariant in examine(self._server.dsn).invariants
            # A walk of this run deletes what no retention that can be set would.
            if invariant.name != "swept_is_old"
            for finding in invariant.findings
        ]

    def _figures(self, case: Case, faults: Faults, took: float) -> dict[str, object]:
        clients, books = case.clients, case.books
        asked = clients.asked.values()
        swept = [*books.accounts.values(), *books.meters.values(), *books.cooks.values()]
        return {
            "errands": len(clients.errands),
            "requests": len(asked),
            "refused": sum(bool(each.refusals) for each in asked),
            "asked again": clients.counts["again"],
            "looked up after an answer": clients.counts["seen"] + clients.counts["unseen"],
            "tasks in the tables": len(books.tasks),
            "nominal times of meters and cooks": sum(
                len(came(each)) for each in (*books.meters.values(), *books.cooks.values())
            ),
            "tasks deleted by walks": sum(len(each.swept.tasks) for each in swept),
            "events deleted by walks": sum(len(each.swept.events) for each in swept),
            "parts of the archive": books.parts.count,
            "tasks in the archive": books.parts.tasks,
            "events in the archive": books.parts.events,
            "rows archived again": books.parts.again,
            "asked anew after a walk": sum(account.is_anew(each.key) for each, account in case.requests()),
            "looks at groups": self._crowds.looks,
            "the most in running at once": ", ".join(
                f"{group} {most} of {self._crowds.limits[group]}"
                for group, most in sorted(self._crowds.most.items())
            ),
            "requests lost": len(self._losses.lost.keys),
            "told that they were lost": clients.again["RequestLost"],
            "told that the task is deleted": clients.again["TaskNotFound"],
            "faults missed": faults.missed,
            "deaths": sum(member.deaths for member in self._members),
            "starts with a wrong clock": sum(
                bool(skew) for member in self._members for skew in member.skews
            ),
            "settled in": f"{took:.1f} s",
        }

    def _of_readers(self, case: Case, faults: Faults, calm: datetime) -> dict[str, object]:
        books = case.books
        strikes = min((fault.at for fault in faults.done), default=None)
        counts = books.deliveries.counts
        projected = [told for rows in books.projected.rows.values() for told in rows]
        return {
            "events that the follower saw": len(books.sights),
            "times it began to follow": self._follower.begun,
            "times it was told of a loss": len(books.readings) - 1,
            "batches of the durable subscription": len(books.deliveries.batches),
            "slices lost at a commit": counts["lost"],
            "times its readers were told of a loss": counts["truncated"],
            "events projected": len(projected),
            "of which deleted before": sum(told.is_deleted for told in projected),
            "idle transactions elsewhere": len(books.idle),
            "lag of the follower in quiet times": shown(
                lags(books.sights, books.idle, strikes=strikes, calm=calm)
            ),
        }


def carry_out(options: Options) -> Report:
    """A run on a PostgreSQL of its own."""
    if options.defect in OF_CLIENTS:
        build_in(options.defect)
    with tempfile.TemporaryDirectory(prefix="prg-chaos-", dir="/tmp", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        server = Server(Path(home) / "postgres")
        try:
            return asyncio.run(_carry_out(server, Path(home), options))
        finally:
            server.leave()


async def _carry_out(server: Server, home: Path, options: Options) -> Report:
    proxy = Proxy(server.socket_path)
    await proxy.start()
    try:
        return await Run(server, proxy, home, options).carry_out()
    finally:
        await proxy.stop()
