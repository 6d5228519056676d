"""The command that serves the console: web."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from progressor.cli import apps
from progressor.cli.options import ADMITTING, FOR_CODECS, SERVING, Embedded, refuse_to_guess, with_settings
from progressor.cli.runner import Runner
from progressor.cli.service import Manner, migrate, requests_left, serve, set_up_logs
from progressor.client.client import Client
from progressor.deployment.database import Database
from progressor.deployment.settings import Settings

if TYPE_CHECKING:
    from progressor.http.server.serve import ApiServer


@with_settings({**FOR_CODECS, **ADMITTING, **SERVING})
def web(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8090,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, and leave out all that changes something.")
    ] = False,
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Serve the console: what runs, why it broke, and how to mend it. Any number of them may run.

    People sign in with a token (`progressor token create`), and see and do what its scopes say. As long as
    there is none, everybody on this machine is let in, and nobody else.

    Example: progressor web --port 8090, then open http://localhost:8090
    """
    refuse_to_guess(settings, embedded=embedded)
    set_up_logs(settings)
    try:
        from progressor.cli import api_access  # noqa: PLC0415 - an extra, which only this needs
        from progressor.web.app import make_console  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"the console needs {error.name}, which the extra web brings: "
            "pip install 'progressor-engine[web]'"
        ) from None
    namespaces = apps.namespaces_of(settings)
    # A wrong setting is refused before anything is begun.
    api_access.access_options(settings)

    def build(found: Database, _runner: Runner) -> ApiServer:
        if embedded:
            # As `dev` does: nobody else looks after the database of this folder.
            migrate(found, settings)
        client = Client(found.dsn, namespaces, **settings.connection_options())
        make = partial(make_console, read_only=read_only)
        return api_access.guarded(client, settings, host=host, port=port, make=make, what="console")

    grace = 2 * settings.http_drain
    manner = Manner["ApiServer"]("web", grace, requests_left, lambda server: {"url": server.url})
    serve(manner, settings, build)
