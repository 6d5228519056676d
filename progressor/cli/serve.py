"""The commands that run until a signal stops them: dev, worker, scanner, zombie-collector."""

from __future__ import annotations

from functools import partial

from progressor.app.app import App
from progressor.cli import apps
from progressor.cli.options import (
    SERVING,
    AppName,
    Concurrency,
    Embedded,
    MaxAge,
    MaxSteps,
    Processes,
    WithScanner,
    WithZombieCollector,
    refuse_to_guess,
    with_settings,
)
from progressor.cli.runner import Runner
from progressor.cli.service import (
    Manner,
    children_of,
    engine_of,
    serve,
    set_up_logs,
    steps_left,
    supervise,
)
from progressor.deployment.database import Database
from progressor.deployment.link import Link
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import Build, Standalone, scanner_apart, zombie_collector_apart
from progressor.engine import Engine
from progressor.loggers import Logger
from progressor.storage import migrations

log = Logger("progressor.cli")


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

    manner = Manner[Engine]("dev", settings.stop_grace, steps_left(settings), namespaces=loaded.namespaces)
    serve(manner, settings, build)


@with_settings(SERVING)
def worker(
    app: AppName,
    *,
    processes: Processes = None,  # noqa: ARG001 - a setting
    concurrency: Concurrency = None,  # noqa: ARG001 - a setting
    scanner: WithScanner = None,  # noqa: ARG001 - a setting
    zombie_collector: WithZombieCollector = None,  # noqa: ARG001 - a setting
    max_steps: MaxSteps = None,  # noqa: ARG001 - a setting
    max_age: MaxAge = None,  # noqa: ARG001 - a setting
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Run the handlers of APP, with a scanner and a zombie collector unless they are turned off.

    Example: progressor worker billing.app --processes 4 --max-age 12:00:00 --metrics-port 9464
    """
    refuse_to_guess(settings, embedded=embedded)
    link, count = Link.inherited(), children_of(settings)
    if link is None and count > 1:
        set_up_logs(settings)
        supervise("worker", count, settings, grace=settings.stop_grace)
        return
    loaded = _load(app, settings, link)
    manner = Manner[Engine]("worker", settings.stop_grace, steps_left(settings, link))
    serve(manner, settings, partial(engine_of, loaded, settings, link), link)


@with_settings(SERVING)
def scanner(*, embedded: Embedded = False, settings: Settings) -> None:
    """Watch the schedule of all namespaces and wake their workers; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    _serve_apart("scanner", settings, scanner_apart)


@with_settings(SERVING)
def zombie_collector(*, embedded: Embedded = False, settings: Settings) -> None:
    """Take tasks from dead workers, in all namespaces; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    _serve_apart("zombie-collector", settings, zombie_collector_apart)


def _serve_apart(command: str, settings: Settings, make: Build) -> None:
    set_up_logs(settings)

    def build(found: Database, _runner: Runner) -> Standalone:
        return Standalone(found.dsn, make, **settings.engine_options())

    serve(Manner[Standalone](command, settings.stop_grace, steps_left(settings)), settings, build)


def _load(app: str, settings: Settings, link: Link | None = None) -> App:
    # First the logs: the user's module may log while it is imported.
    set_up_logs(settings, link)
    return apps.load(app)
