"""The HTTP API as a command: `progressor api`."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Annotated

import typer

from progressor.cli import apps
from progressor.cli.options import SERVING, Embedded, refuse_to_guess, with_settings
from progressor.cli.output import note, stderr
from progressor.cli.running import Runner
from progressor.cli.serve import places
from progressor.client.client import Client
from progressor.deployment import logs
from progressor.deployment.database import database
from progressor.deployment.monitor import Monitor
from progressor.deployment.settings import Settings
from progressor.handlers.namespace import Namespace

log = logging.getLogger("progressor.cli")


@with_settings(SERVING)
def api(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP]",
            show_default=False,
            help="module:attribute, if namespaces have codecs, which the API then needs.",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 8080,
    http_insecure_no_auth: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--insecure-no-auth",
            show_default=False,
            help="Let everybody in, on any address: behind a gateway of your own.",
        ),
    ] = None,
    http_allowed_hosts: Annotated[  # noqa: ARG001 - a setting
        str | None,
        typer.Option(
            "--allowed-hosts",
            metavar="NAMES",
            show_default=False,
            help="The hosts under which whoever shows nothing may ask: api,progressor.example.",
        ),
    ] = None,
    http_require_idempotency_key: Annotated[  # noqa: ARG001 - a setting
        bool | None,
        typer.Option(
            "--require-idempotency-key",
            show_default=False,
            help="Refuse calls, notices, repairs and changes of timers without an idempotency key.",
        ),
    ] = None,
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Serve the HTTP API of all processes; needs no APP, and any number of them may run.

    Whoever asks shows a token (`progressor token create`). On this machine alone, as long as there is none,
    everybody is let in.

    Example: progressor api --port 8080, then curl
    localhost:8080/v1/namespaces/subscription/processes/acme
    """
    refuse_to_guess(settings, embedded=embedded)
    logs.set_up(level=settings.log_level, form=settings.log_format)
    namespaces = [] if app is None else apps.load(app)
    _serve(settings, namespaces, host=host, port=port)


def _serve(settings: Settings, namespaces: list[Namespace], *, host: str, port: int) -> None:
    try:
        from progressor.cli.api_access import guarded  # noqa: PLC0415 - an extra, which only this needs
        from progressor.http.serving import Serving  # noqa: PLC0415 - an extra, which only this needs
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"the API needs {error.name}, which the extra http brings: "
            "pip install 'progressor-engine[http]'"
        ) from None
    with ExitStack() as stack:
        monitor: Monitor | None = None
        running: list[Serving] = []

        def stopping(signal_name: str | None) -> None:
            if monitor is not None:
                monitor.leave()
            waiting = sum(each.busy for each in running)
            if stderr().is_terminal:
                note(f"answering {waiting} requests, press Ctrl-C again to leave at once")
            else:
                log.info("answering requests", extra={"signal": signal_name, "requests": waiting})

        runner = stack.enter_context(Runner(grace=2 * settings.http_drain, stopping=stopping))
        found = stack.enter_context(database(settings))
        if settings.metrics_port is not None:
            monitor = stack.enter_context(Monitor(settings.metrics_host, settings.metrics_port))

        def started(serving: Serving) -> None:
            running.append(serving)
            if monitor is not None:
                monitor.watch(serving.client.health)
            facts = {"command": "api", "database": found.shown, "url": serving.url, **places(monitor)}
            log.info("serving", extra=facts)

        client = Client(found.dsn, namespaces, **settings.connection_options())
        runner.run(guarded(client, settings, host=host, port=port), started)
