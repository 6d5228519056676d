"""Services of the command line: entered, watched, and stopped by a signal.

Rule: `dev`, `worker`, `api` and the others run by `serve` alone, as one OS process or as the child of a
supervisor. What differs stands in their `Manner`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import typer

from progressor.app.app import App
from progressor.cli.banner import banner
from progressor.cli.output import note, stderr
from progressor.cli.runner import BEYOND_GRACE, Runner, leave, warn_of_polls
from progressor.client.client import Client
from progressor.client.system import health_within
from progressor.deployment import logs
from progressor.deployment.database import Database, database
from progressor.deployment.health import DATABASE_SECONDS
from progressor.deployment.link import Link
from progressor.deployment.monitor import Monitor
from progressor.deployment.retirement import Recycling
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import Build as BuildApart, Standalone
from progressor.deployment.supervisor import CannotStart, Supervisor
from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.loggers import Logger

if TYPE_CHECKING:
    from progressor.http.server.serve import ApiServer

log = Logger("progressor.cli")

_KILL_EARLIER = timedelta(seconds=5)


class Service(Protocol):
    """A service that runs; its health is that of its client."""

    @property
    def client(self) -> Client: ...


class Busy(Service, Protocol):
    """A service with steps that run."""

    @property
    def busy(self) -> int: ...


S = TypeVar("S", bound=Service)

Build = Callable[[Database, Runner], AbstractAsyncContextManager[S]]


class Rest(NamedTuple):
    """The rest of a service's work when it is told to stop, for its log, and for a terminal."""

    message: str
    facts: Mapping[str, object]
    note: str


def _nothing(_service: object) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True)
class Manner(Generic[S]):
    """The manner in which a command serves.

    `grace` is the time that its rest may take, and `rest` returns that rest: of the one service, or of none
    before it serves. `facts` are further ones for the line that logs its begin. With `namespaces`, a
    terminal shows a banner.
    """

    command: str
    grace: timedelta
    rest: Callable[[Sequence[S]], Rest]
    facts: Callable[[S], Mapping[str, object]] = _nothing
    namespaces: Sequence[Namespace] | None = None


def serve(manner: Manner[S], settings: Settings, build: Build[S], link: Link | None = None) -> None:
    """Serve until a signal; a child (with its `link`) until its supervisor stops it.

    A supervisor logs, and shows metrics and health, in the place of its children.
    """
    with ExitStack() as stack:
        check: Monitor | Link | None = link
        running: list[S] = []

        def stopping(signal_name: str | None) -> None:
            if check is not None:
                check.leave()
            _say_stopping(signal_name, manner.rest(running), link)

        again = leave if link is None else go_on
        runner = stack.enter_context(Runner(grace=manner.grace, stopping=stopping, again=again))
        found = stack.enter_context(database(settings))
        if link is None and settings.metrics_port is not None:
            check = stack.enter_context(Monitor(settings.metrics_host, settings.metrics_port))

        def started(service: S) -> None:
            running.append(service)
            if check is not None:
                check.watch(partial(health_within, service.client.health, DATABASE_SECONDS))
            if link is None:
                _say_started(manner, service, found, check if isinstance(check, Monitor) else None)
                warn_of_polls(settings)

        runner.run(build(found, runner), started)


def serve_apart(command: str, settings: Settings, make: BuildApart) -> None:
    """Serve one service, without an engine, until a signal."""

    def build(found: Database, _runner: Runner) -> Standalone:
        return Standalone(found.dsn, make, **settings.engine_options())

    serve(Manner[Standalone](command, settings.stop_grace, steps_left(settings)), settings, build)


class OverEngine(NamedTuple):
    """A server that serves HTTP, and the engine below it if this OS process runs handlers."""

    server: ApiServer
    engine: Engine | None = None

    @property
    def client(self) -> Client:
        """The client of both."""
        return self.server.client

    @property
    def busy(self) -> int:
        """The number of steps that run."""
        return 0 if self.engine is None else self.engine.busy


@asynccontextmanager
async def over_engine(
    engine: AbstractAsyncContextManager[Engine],
    over: Callable[[Client], ApiServer],
    listener: socket.socket,
) -> AsyncIterator[OverEngine]:
    """Serve HTTP above the engine: the last requests are answered while steps still run."""
    # Closed here too, in case that the engine does not start.
    with closing(listener):
        async with engine as running, over(running.client) as server:
            yield OverEngine(server, running)


def engine_of(
    app: App, settings: Settings, link: Link | None, found: Database, runner: Runner
) -> AbstractAsyncContextManager[Engine]:
    """Return an engine of this app, with these settings, that asks to be replaced after its share."""
    recycling = Recycling(max_steps=settings.max_steps, max_age=settings.max_age)
    engine = Engine(found.dsn, app, **settings.engine_options())
    return recycling.of(engine, runner.stop if link is None else link.spent)


def steps_left(settings: Settings, link: Link | None = None) -> Callable[[Sequence[Busy]], Rest]:
    """Return a function that returns the steps which services finish before they leave."""

    def rest(running: Sequence[Busy]) -> Rest:
        steps = sum(service.busy for service in running)
        seconds = settings.stop_grace.total_seconds()
        message = "finishing steps" if link else "finishing steps, a second signal leaves at once"
        awaited = f"finishing {steps} step{'s' * (steps != 1)} (at most {seconds:g} s)"
        facts = {"steps": steps, "at_most_seconds": seconds}
        return Rest(message, facts, awaited if steps else "stopping")

    return rest


def requests_left(servers: Sequence[ApiServer]) -> Rest:
    """Return the requests which these servers answer before they leave."""
    requests = sum(server.busy for server in servers)
    return Rest("answering requests", {"requests": requests}, f"answering {requests} requests")


def migrate(found: Database, settings: Settings) -> None:
    """Bring the schema of a database for development to that of this release, and log a change."""
    from progressor.storage import migrations  # noqa: PLC0415 - it imports alembic, which few need

    before, after = migrations.upgrade(found.dsn, schema=settings.database_schema)
    if before != after:
        log.info("database migrated", extra={"before": before, "after": after})


def set_up_logs(settings: Settings, link: Link | None = None) -> None:
    """Set up the logs of this OS process; those of a child name it."""
    child = None if link is None else link.number
    logs.set_up(level=settings.log_level, form=settings.log_format, child=child)


def children_of(settings: Settings) -> int:
    """Return the number of OS processes that share the work; the setting 0 means one for each core."""
    return settings.processes or _usable_cores()


def _usable_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def go_on(_signum: int) -> None:
    """Ignore a second signal: a service manager and the supervisor may both have sent one."""


def supervise(
    command: str,
    count: int,
    settings: Settings,
    *,
    grace: timedelta,
    shared: Sequence[socket.socket] = (),
    **facts: object,
) -> None:
    """Run `count` children until a signal, on the `shared` sockets; Exit if they cannot start."""
    # A child that hangs is killed before this process would have to leave without it.
    most = grace + BEYOND_GRACE - _KILL_EARLIER
    supervisor = Supervisor(count, patience=most.total_seconds(), shared=shared)

    def stopping(signal_name: str | None) -> None:
        if monitor is not None:
            monitor.leave()
        rest = Rest("stopping, a second signal leaves at once", {}, f"stopping {count} processes")
        _say_stopping(signal_name, rest)

    def again(signum: int) -> None:
        supervisor.kill()
        leave(signum)

    def started(_: Supervisor) -> None:
        if monitor is not None:
            monitor.watch(supervisor.health, supervisor.life)
        log.info("serving", extra={"command": command, "processes": count, **facts, **_places(monitor)})
        warn_of_polls(settings)

    with ExitStack() as stack:
        monitor = None
        runner = stack.enter_context(Runner(grace=grace, stopping=stopping, again=again))
        if settings.metrics_port is not None:
            monitor = stack.enter_context(
                Monitor(settings.metrics_host, settings.metrics_port, supervisor.exposition)
            )
        try:
            runner.run(supervisor, started)
        except CannotStart as failure:
            raise typer.Exit(failure.status) from None


def _say_started(manner: Manner[S], service: S, found: Database, monitor: Monitor | None) -> None:
    if manner.namespaces is not None and stderr().is_terminal:
        banner(manner.namespaces, found, monitor, manner.facts(service))
        return
    facts = {"command": manner.command, "database": found.shown, **manner.facts(service)}
    log.info("serving", extra={**facts, **_places(monitor)})


def _places(monitor: Monitor | None) -> dict[str, str]:
    """Return the URLs of metrics and health, for the log; none without a monitor."""
    if monitor is None:
        return {}
    return {"metrics": f"{monitor.url}/metrics", "health": f"{monitor.url}/health"}


def _say_stopping(signal_name: str | None, rest: Rest, link: Link | None = None) -> None:
    if link is None and stderr().is_terminal:
        note(f"{rest.note}, press Ctrl-C again to leave at once")
        return
    cause = {} if signal_name is None else {"signal": signal_name}
    log.info(rest.message, extra={**cause, **rest.facts})
