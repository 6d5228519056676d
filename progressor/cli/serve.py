"""The commands that run until a signal stops them: dev, worker, scanner, zombie-collector."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import timedelta
from typing import Annotated, TypeVar

import typer

from progressor.app.app import App
from progressor.cli import apps
from progressor.cli.banner import banner
from progressor.cli.options import SERVING, AppName, Embedded, Processes, refuse_to_guess, with_settings
from progressor.cli.output import note, stderr
from progressor.cli.runner import BEYOND_GRACE, Runner, leave, warn_of_polls
from progressor.deployment import logs
from progressor.deployment.database import Database, database
from progressor.deployment.link import Link
from progressor.deployment.monitor import Monitor
from progressor.deployment.retirement import Recycling
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import Standalone, scanner_apart, zombie_collector_apart
from progressor.deployment.supervisor import CannotStart, Supervisor
from progressor.engine import Engine
from progressor.handlers.namespace import Namespace
from progressor.loggers import Logger
from progressor.storage import migrations

log = Logger("progressor.cli")

S = TypeVar("S", Engine, Standalone)

_KILL_EARLIER = timedelta(seconds=5)


@with_settings(SERVING)
def dev(app: AppName, *, settings: Settings) -> None:
    """Serve APP with everything in one process: workers, metrics, and a database that it migrates.

    The database is that of PROGRESSOR_DATABASE_URL or, if that is not set, an embedded PostgreSQL.
    """
    if settings.metrics_port is None:
        settings = settings.model_copy(update={"metrics_port": 0})
    loaded = _load(app, settings)

    def build(found: Database, _runner: Runner) -> Engine:
        before, after = migrations.upgrade(found.dsn, schema=settings.database_schema)
        if before != after:
            log.info("database migrated", extra={"before": before, "after": after})
        return Engine(
            found.dsn, loaded, **settings.engine_options() | {"scanner": True, "zombie_collector": True}
        )

    _serve("dev", settings, build, namespaces=loaded.namespaces)


@with_settings(SERVING)
def worker(
    app: AppName,
    *,
    processes: Processes = None,  # noqa: ARG001 - a setting
    scanner: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option("--scanner/--no-scanner", help="Scan in this process.", show_default="scan"),
    ] = None,
    zombie_collector: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--zombie-collector/--no-zombie-collector",
            help="Collect zombies in this process.",
            show_default="collect",
        ),
    ] = None,
    max_steps: Annotated[  # noqa: ARG001 - a setting
        int | None,
        typer.Option(
            "--max-steps",
            metavar="N",
            help="Exit with 0 after this many steps at most, to be restarted.",
            show_default="never",
        ),
    ] = None,
    max_age: Annotated[  # noqa: ARG001 - a setting
        str | None,
        typer.Option(
            "--max-age",
            metavar="DURATION",
            help="The same after this time at most: seconds, ISO 8601 (P1D) or hh:mm:ss.",
            show_default="never",
        ),
    ] = None,
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Run the handlers of APP, with a scanner and a zombie collector unless they are turned off.

    Example: progressor worker billing.app --processes 4 --max-age 12:00:00 --metrics-port 9464
    """
    refuse_to_guess(settings, embedded=embedded)
    link = Link.inherited()
    count = children_of(settings)
    if link is None and count > 1:
        _set_up_logs(settings)
        supervise("worker", count, settings, grace=settings.stop_grace)
        return
    loaded = _load(app, settings, link)

    recycling = Recycling(max_steps=settings.max_steps, max_age=settings.max_age)

    def build(found: Database, runner: Runner) -> AbstractAsyncContextManager[Engine]:
        engine = Engine(found.dsn, loaded, **settings.engine_options())
        return recycling.of(engine, runner.stop if link is None else link.spent)

    if link is None:
        _serve("worker", settings, build)
    else:
        _serve_as_child(settings, build, link)


@with_settings(SERVING)
def scanner(*, embedded: Embedded = False, settings: Settings) -> None:
    """Watch the schedule of all namespaces and wake their workers; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    _set_up_logs(settings)

    def build(found: Database, _runner: Runner) -> Standalone:
        return Standalone(found.dsn, scanner_apart, **settings.engine_options())

    _serve("scanner", settings, build)


@with_settings(SERVING)
def zombie_collector(*, embedded: Embedded = False, settings: Settings) -> None:
    """Take tasks from dead workers, in all namespaces; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    _set_up_logs(settings)

    def build(found: Database, _runner: Runner) -> Standalone:
        return Standalone(found.dsn, zombie_collector_apart, **settings.engine_options())

    _serve("zombie-collector", settings, build)


def children_of(settings: Settings) -> int:
    """Return the number of OS processes that share the work; the setting 0 means one for each core."""
    return settings.processes or _usable_cores()


def _usable_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _set_up_logs(settings: Settings, link: Link | None = None) -> None:
    child = None if link is None else link.number
    logs.set_up(level=settings.log_level, form=settings.log_format, child=child)


def _load(app: str, settings: Settings, link: Link | None = None) -> App:
    # First the logs: the user's module may log while it is imported.
    _set_up_logs(settings, link)
    return apps.load(app)


def _serve(
    command: str,
    settings: Settings,
    build: Callable[[Database, Runner], AbstractAsyncContextManager[S]],
    *,
    namespaces: Sequence[Namespace] | None = None,
) -> None:
    """Serve until a signal; with `namespaces`, show a banner in a terminal."""
    with ExitStack() as stack:
        monitor: Monitor | None = None
        running: list[S] = []

        def stopping(signal_name: str | None) -> None:
            if monitor is not None:
                monitor.leave()
            _say_stopping(signal_name, sum(service.busy for service in running), settings)

        runner = stack.enter_context(Runner(grace=settings.stop_grace, stopping=stopping))
        found = stack.enter_context(database(settings))
        if settings.metrics_port is not None:
            monitor = stack.enter_context(Monitor(settings.metrics_host, settings.metrics_port))

        def started(service: S) -> None:
            running.append(service)
            if monitor is not None:
                monitor.watch(service.client.health)
            _say_started(command, found, monitor, namespaces)
            warn_of_polls(settings)

        runner.run(build(found, runner), started)


def _serve_as_child(
    settings: Settings, build: Callable[[Database, Runner], AbstractAsyncContextManager[Engine]], link: Link
) -> None:
    """Serve until the supervisor stops this child; it shows metrics and health in the child's place."""
    running: list[Engine] = []

    def stopping(signal_name: str | None) -> None:
        link.leave()
        steps = sum(engine.busy for engine in running)
        log.info("finishing steps", extra=_stop_facts(signal_name, steps, settings))

    with (
        Runner(grace=settings.stop_grace, stopping=stopping, again=go_on) as runner,
        database(settings) as found,
    ):

        def started(engine: Engine) -> None:
            running.append(engine)
            link.watch(engine.client.health)

        runner.run(build(found, runner), started)


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
        if stderr().is_terminal:
            note(f"stopping {count} processes, press Ctrl-C again to leave at once")
        else:
            log.info("stopping, a second signal leaves at once", extra={"signal": signal_name})

    def again(signum: int) -> None:
        supervisor.kill()
        leave(signum)

    def started(_: Supervisor) -> None:
        if monitor is not None:
            monitor.watch(supervisor.health, supervisor.life)
        log.info("serving", extra={"command": command, "processes": count, **facts, **places(monitor)})
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


def _say_started(
    command: str, found: Database, monitor: Monitor | None, namespaces: Sequence[Namespace] | None
) -> None:
    if namespaces is not None and stderr().is_terminal:
        banner(namespaces, found, monitor)
        return
    log.info("serving", extra={"command": command, "database": found.shown, **places(monitor)})


def places(monitor: Monitor | None) -> dict[str, str]:
    """Return the URLs of metrics and health, for the log; none without a monitor."""
    if monitor is None:
        return {}
    return {"metrics": f"{monitor.url}/metrics", "health": f"{monitor.url}/health"}


def _say_stopping(signal_name: str | None, steps: int, settings: Settings) -> None:
    if not stderr().is_terminal:
        facts = _stop_facts(signal_name, steps, settings)
        log.info("finishing steps, a second signal leaves at once", extra=facts)
        return
    seconds = settings.stop_grace.total_seconds()
    awaited = f"finishing {steps} step{'s' * (steps != 1)} (at most {seconds:g} s)" if steps else "stopping"
    note(f"{awaited}, press Ctrl-C again to leave at once")


def _stop_facts(signal_name: str | None, steps: int, settings: Settings) -> dict[str, object]:
    seconds = settings.stop_grace.total_seconds()
    cause = {} if signal_name is None else {"signal": signal_name}
    return {**cause, "steps": steps, "at_most_seconds": seconds}
