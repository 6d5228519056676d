"""The commands that run until a signal stops them: dev, worker, scanner, zombie-collector."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from progressor.app.app import App
from progressor.cli import apps
from progressor.cli.options import OF_APP, RUNNING, SERVING, Embedded, refuse_to_guess, with_settings
from progressor.cli.runner import Runner
from progressor.cli.service import (
    Manner,
    OverEngine,
    children_of,
    engine_of,
    migrate,
    over_engine,
    serve,
    serve_apart,
    set_up_logs,
    steps_left,
    supervise,
)
from progressor.client.client import Client
from progressor.deployment.database import Database
from progressor.deployment.link import Link
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import scanner_apart, zombie_collector_apart
from progressor.engine import Engine
from progressor.errors import InvalidRequest
from progressor.loggers import Logger

if TYPE_CHECKING:
    from progressor.http.server.serve import ApiServer

log = Logger("progressor.cli")

# Where `dev` serves the console.
_HOST, _PORT = "127.0.0.1", 8090


@with_settings({**OF_APP, **SERVING})
def dev(
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=f"{_PORT}, or a free one if that is taken",
            help="Port of the console, on 127.0.0.1.",
        ),
    ] = None,
    settings: Settings,
) -> None:
    """Serve APP with everything in one process: workers, console, metrics, a database that it migrates.

    The database is that of PROGRESSOR_DATABASE_URL or, if that is not set, an embedded PostgreSQL. The
    console is there with the extra web.
    """
    if settings.metrics_port is None:
        settings = settings.model_copy(update={"metrics_port": 0})
    loaded = _load(settings)

    def build(found: Database, _runner: Runner) -> AbstractAsyncContextManager[OverEngine | Engine]:
        migrate(found, settings)
        options = settings.engine_options() | {"scanner": True, "zombie_collector": True}
        return _with_console(Engine(found.dsn, loaded, **options), settings, port)

    manner = Manner[OverEngine | Engine](
        "dev", settings.stop_grace, steps_left(settings), _console_of, loaded.namespaces
    )
    serve(manner, settings, build)


def _with_console(
    engine: Engine, settings: Settings, port: int | None
) -> AbstractAsyncContextManager[OverEngine | Engine]:
    """Return the engine with the console above it; the engine alone without the extra."""
    try:
        from progressor.cli.api_access import guarded  # noqa: PLC0415 - an extra
        from progressor.http.server.serve import bound  # noqa: PLC0415 - an extra
        from progressor.web.app import make_console  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        log.info("without the console, which the extra web brings", extra={"missing": error.name})
        return engine
    try:
        listener = bound(_HOST, _PORT if port is None else port)
    except InvalidRequest:
        if port is not None:
            raise
        listener = bound(_HOST, 0)

    def over(client: Client) -> ApiServer:
        return guarded(
            client, settings, host=_HOST, port=0, listener=listener, make=make_console, what="console"
        )

    return over_engine(engine, over, listener)


def _console_of(running: OverEngine | Engine) -> Mapping[str, object]:
    return {"console": running.server.url} if isinstance(running, OverEngine) else {}


@with_settings({**OF_APP, **RUNNING, **SERVING})
def worker(*, embedded: Embedded = False, settings: Settings) -> None:
    """Run the handlers of APP, with a scanner and a zombie collector unless they are turned off.

    Example: progressor worker billing.app --processes 4 --max-age 12:00:00 --metrics-port 9464
    """
    refuse_to_guess(settings, embedded=embedded)
    apps.name_of(settings)
    link, count = Link.inherited(), children_of(settings)
    if link is None and count > 1:
        set_up_logs(settings)
        supervise("worker", count, settings, grace=settings.stop_grace)
        return
    loaded = _load(settings, link)
    manner = Manner[Engine]("worker", settings.stop_grace, steps_left(settings, link))
    serve(manner, settings, partial(engine_of, loaded, settings, link), link)


@with_settings(SERVING)
def scanner(*, embedded: Embedded = False, settings: Settings) -> None:
    """Watch the schedule of all namespaces and wake their workers; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    set_up_logs(settings)
    serve_apart("scanner", settings, scanner_apart)


@with_settings(SERVING)
def zombie_collector(*, embedded: Embedded = False, settings: Settings) -> None:
    """Take tasks from dead workers, in all namespaces; needs no APP."""
    refuse_to_guess(settings, embedded=embedded)
    set_up_logs(settings)
    serve_apart("zombie-collector", settings, zombie_collector_apart)


def _load(settings: Settings, link: Link | None = None) -> App:
    # First the logs: the user's module may log while it is imported.
    set_up_logs(settings, link)
    return apps.load(apps.name_of(settings))
