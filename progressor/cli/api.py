"""The HTTP API as a command: `progressor api`, with or without the handlers of an app in its OS process."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from progressor.app.app import App
from progressor.cli import apps
from progressor.cli.options import (
    ADMITTING,
    FOR_CODECS,
    RUNNING,
    SERVING,
    Embedded,
    given_on_command_line,
    refuse_to_guess,
    with_settings,
)
from progressor.cli.runner import Runner
from progressor.cli.service import (
    Manner,
    OverEngine,
    Rest,
    children_of,
    engine_of,
    over_engine,
    requests_left,
    serve,
    set_up_logs,
    steps_left,
    supervise,
)
from progressor.client.client import Client
from progressor.deployment.database import Database
from progressor.deployment.link import Link
from progressor.deployment.settings import Settings

if TYPE_CHECKING:
    from progressor.http.server.serve import ApiServer

# The options of the command that are about handlers alone, by the names of their settings.
_OF_HANDLERS = [name for name in RUNNING if name != "processes"]


@with_settings({**FOR_CODECS, **ADMITTING, **RUNNING, **SERVING})
def api(
    *,
    context: typer.Context,
    http_run_handlers: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--run-handlers", help="Be a worker of APP too: requests over HTTP are run in this OS process."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8080,
    http_require_idempotency_key: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--require-idempotency-key",
            help="Reject calls, notices, repairs and timer changes without an idempotency key.",
        ),
    ] = None,
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Serve the HTTP API of all processes; needs no APP, and any number of them may run.

    Callers need a token (`progressor token create`). As long as there is none, everybody on this machine is
    let in, and nobody else.

    Example: progressor api --port 8080, then curl
    localhost:8080/v1/namespaces/subscription/processes/acme

    With --run-handlers it runs the handlers of APP as `progressor worker APP` does, and takes its options.
    A call is then accepted, run and saved here, often in one transaction, instead of on its way to a worker
    and back; requests for other namespaces still go to theirs. HTTP and handlers share one core and one
    event loop in each OS process.

    Example: progressor api billing.app --run-handlers --processes 4 --metrics-port 9465
    """
    refuse_to_guess(settings, embedded=embedded)
    _refuse_half(context, settings)
    link, count = Link.inherited(), children_of(settings)
    set_up_logs(settings, link)
    try:
        from progressor.http.server import serve as serving  # noqa: PLC0415 - an extra, which only this needs
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"the API needs {error.name}, which the extra http brings: "
            "pip install 'progressor-engine[http]'"
        ) from None
    if link is None and count > 1:
        with serving.bound(host, port) as listener:
            url = serving.url_of(host, listener)
            supervise("api", count, settings, grace=_grace(settings), shared=[listener], url=url)
        return
    loaded = None if settings.app is None else apps.load(settings.app)
    rest = partial(_rest, settings, link)
    manner = Manner[OverEngine]("api", _grace(settings), rest, lambda api: {"url": api.server.url})
    serve(manner, settings, partial(_build, settings, loaded, _Place(host, port, link)), link)


def _refuse_half(context: typer.Context, settings: Settings) -> None:
    """Demand an APP for --run-handlers, and --run-handlers for the options of handlers."""
    if settings.http_run_handlers:
        if settings.app is None:
            raise typer.BadParameter(
                "it needs an APP, whose handlers it runs: progressor api module:attribute --run-handlers",
                param_hint="--run-handlers",
            )
        return
    for option in given_on_command_line(context, _OF_HANDLERS):
        raise typer.BadParameter(
            "it is about handlers, and this API runs none: say --run-handlers too, or leave it out",
            param_hint=option,
        )


def _grace(settings: Settings) -> timedelta:
    of_requests = 2 * settings.http_drain
    return of_requests + settings.stop_grace if settings.http_run_handlers else of_requests


class _Place(NamedTuple):
    """The address of an API, and the link of a child, which has its socket from its supervisor."""

    host: str
    port: int
    link: Link | None


def _rest(settings: Settings, link: Link | None, running: Sequence[OverEngine]) -> Rest:
    requests = requests_left([api.server for api in running])
    if not settings.http_run_handlers:
        return requests
    steps = steps_left(settings, link)(running)
    message, facts = f"{requests.message}, then {steps.message}", {**requests.facts, **steps.facts}
    return Rest(message, facts, f"{requests.note}, then {steps.note}")


def _build(
    settings: Settings, app: App | None, place: _Place, found: Database, runner: Runner
) -> AbstractAsyncContextManager[OverEngine]:
    """Return the API over a client, or over the engine that runs the handlers of this app."""
    from progressor.cli.api_access import access_options, guarded  # noqa: PLC0415 - an extra
    from progressor.http.server.serve import bound  # noqa: PLC0415 - an extra

    host, port, link = place
    # A wrong setting, or a port that is taken, is refused before a handler runs.
    access_options(settings)
    listener = bound(host, port) if link is None else socket.socket(fileno=link.descriptors[0])

    def over(client: Client) -> ApiServer:
        return guarded(client, settings, host=host, port=port, listener=listener)

    if app is not None and settings.http_run_handlers:
        return over_engine(engine_of(app, settings, link, found, runner), over, listener)
    namespaces = [] if app is None else app.namespaces
    return _over_client(over(Client(found.dsn, namespaces, **settings.connection_options())))


@asynccontextmanager
async def _over_client(api: ApiServer) -> AsyncIterator[OverEngine]:
    async with api as server:
        yield OverEngine(server)
