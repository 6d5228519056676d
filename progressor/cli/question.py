"""One question of a command to a client, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from progressor.cli.output import note, stderr
from progressor.client.client import Client
from progressor.deployment import logs
from progressor.deployment.database import existing_database
from progressor.deployment.settings import Settings

T = TypeVar("T")


def ask(settings: Settings, question: Callable[[Client], Awaitable[T]]) -> T:
    """Ask this of a client of the existing database, and return its answer."""
    # Below warnings the log would only hide the answer, unless the user sets a level.
    level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
    logs.set_up(level=level, form=settings.log_format)

    async def run(dsn: str) -> T:
        async with Client(dsn, **settings.connection_options()) as client:
            return await question(client)

    with existing_database(settings) as found:
        if settings.database_url is None and stderr().is_terminal:
            note(f"no PROGRESSOR_DATABASE_URL: this is the {found.shown}")
        return asyncio.run(run(found.dsn))
