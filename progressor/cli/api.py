"""The HTTP API as a command: `progressor api`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from progressor.cli import apps
from progressor.cli.options import SERVING, Embedded, Processes, refuse_to_guess, with_settings
from progressor.cli.output import note, stderr
from progressor.cli.runner import Runner, leave, warn_of_polls
from progressor.cli.serve import children_of, go_on, places, supervise
from progressor.client.client import Client
from progressor.deployment import logs
from progressor.deployment.database import database
from progressor.deployment.link import Link
from progressor.deployment.monitor import Monitor
from progressor.deployment.settings import Settings
from progressor.handlers.namespace import Namespace
from progressor.loggers import Logger

if TYPE_CHECKING:
    from progressor.http.server.serve import ApiServer

log = Logger("progressor.cli")


@with_settings(SERVING)
def api(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]",
            show_default=False,
            help="module:attribute; needed if namespaces have codecs.",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 8080,
    http_insecure_no_auth: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--insecure-no-auth",
            show_default=False,
            help="Serve callers without credentials on any address: behind a gateway of your own.",
        ),
    ] = None,
    http_allowed_hosts: Annotated[  # noqa: ARG001 - a setting
        str | None,
        typer.Option(
            "--allowed-hosts",
            metavar="NAMES",
            show_default=False,
            help="Host names under which callers without credentials are served: api,progressor.example.",
        ),
    ] = None,
    http_require_idempotency_key: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--require-idempotency-key",
            show_default=False,
            help="Reject calls, notices, repairs and timer changes without an idempotency key.",
        ),
    ] = None,
    processes: Processes = None,  # noqa: ARG001 - a setting
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Serve the HTTP API of all processes; needs no APP, and any number of them may run.

    Callers need a token (`progressor token create`). As long as there is none, everybody on this machine is
    let in, and nobody else.

    Example: progressor api --port 8080, then curl
    localhost:8080/v1/namespaces/subscription/processes/acme
    """
    refuse_to_guess(settings, embedded=embedded)
    link, count = Link.inherited(), children_of(settings)
    logs.set_up(
        level=settings.log_level, form=settings.log_format, child=None if link is None else link.number
    )
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
    namespaces = [] if app is None else apps.load(app).namespaces
    _serve(settings, namespaces, host, port, link)


def _grace(settings: Settings) -> timedelta:
    return 2 * settings.http_drain


def _serve(
    settings: Settings,
    namespaces: Sequence[Namespace],
    host: str,
    port: int,
    link: Link | None,
) -> None:
    """Serve the API; a child serves on its supervisor's socket, and reports health over its link."""
    from progressor.cli.api_access import guarded  # noqa: PLC0415 - an extra, which only this needs

    listener = None if link is None else socket.socket(fileno=link.descriptors[0])
    with ExitStack() as stack:
        check: Monitor | Link | None = link
        running: list[ApiServer] = []

        def stopping(signal_name: str | None) -> None:
            if check is not None:
                check.leave()
            waiting = sum(each.busy for each in running)
            if link is None and stderr().is_terminal:
                note(f"answering {waiting} requests, press Ctrl-C again to leave at once")
            else:
                log.info("answering requests", extra={"signal": signal_name, "requests": waiting})

        again = leave if link is None else go_on
        runner = stack.enter_context(Runner(grace=_grace(settings), stopping=stopping, again=again))
        found = stack.enter_context(database(settings))
        if link is None and settings.metrics_port is not None:
            check = stack.enter_context(Monitor(settings.metrics_host, settings.metrics_port))

        def started(serving: ApiServer) -> None:
            running.append(serving)
            if check is not None:
                check.watch(serving.client.health)
            if link is None:
                monitor = check if isinstance(check, Monitor) else None
                facts = {"command": "api", "database": found.shown, "url": serving.url, **places(monitor)}
                log.info("serving", extra=facts)
                warn_of_polls(settings)

        client = Client(found.dsn, namespaces, **settings.connection_options())
        runner.run(guarded(client, settings, host=host, port=port, listener=listener), started)
