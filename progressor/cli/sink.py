"""The command that sends events of the feed on: sink."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from progressor.cli import apps
from progressor.cli.options import FOR_CODECS, SERVING, Embedded, refuse_to_guess, with_settings
from progressor.cli.service import serve_apart, set_up_logs
from progressor.client.engine_client import EngineClient
from progressor.config import EngineOptions
from progressor.deployment.settings import Settings
from progressor.deployment.standalone import Apart
from progressor.errors import InvalidRequest
from progressor.node.node import Node
from progressor.sinks.config import read_sinks
from progressor.sinks.service import SinksService
from progressor.worker.pools import Pools


@with_settings({**FOR_CODECS, **SERVING})
def sink(
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help=r"TOML, a table \[sinks.NAME] each.")],
    check: Annotated[bool, typer.Option("--check", help="Read the file, send nothing, and end.")] = False,
    embedded: Embedded = False,
    settings: Settings,
) -> None:
    """Send what processes do to webhooks, Kafka, NATS, files or functions, as a file says.

    Each sink is a subscription of its name, which remembers how far it has come: see `subscriptions`. Run
    several for availability: one of them sends at a time. `progressor sink --config sinks.toml`
    """
    set_up_logs(settings)
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{config} cannot be read: {error}", field="config") from None
    try:
        sinks = read_sinks(text, os.environ)
    except InvalidRequest as error:
        raise InvalidRequest(f"{config}: {error}", field=error.field) from None
    if check:
        typer.echo(f"{config} has these sinks: {', '.join(each.name for each in sinks)}")
        return
    refuse_to_guess(settings, embedded=embedded)
    namespaces = apps.namespaces_of(settings)

    def make(node: Node, _options: EngineOptions) -> Apart:
        return Apart(SinksService(EngineClient(node, namespaces, Pools()), sinks))

    serve_apart("sink", settings, make)
