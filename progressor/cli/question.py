"""One question of a command to a client, and its answer."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from progressor.acts import Way, acting
from progressor.cli.apps import untyped_namespaces
from progressor.cli.output import note, stderr
from progressor.client.client import Client
from progressor.deployment import logs
from progressor.deployment.database import existing_database
from progressor.deployment.settings import Settings

T = TypeVar("T")


def ask(settings: Settings, question: Callable[[Client], Awaitable[T]], *, values: bool = False) -> T:
    """Ask this of a client of the existing database, and return its answer.

    `values`: it reads or writes values, which the codecs of an app may hide.
    """
    log_warnings(settings)
    namespaces = untyped_namespaces(settings) if values else ()

    async def run(dsn: str) -> T:
        async with Client(dsn, namespaces, **settings.connection_options()) as client:
            return await question(client)

    with as_operator(settings), existing_database(settings) as found:
        if settings.database_url is None and stderr().is_terminal:
            note(f"no PROGRESSOR_DATABASE_URL: this is the {found.shown}")
        return asyncio.run(run(found.dsn))


def log_warnings(settings: Settings) -> None:
    """Log nothing below warnings, which would only hide the answer, unless the user sets a level."""
    level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
    logs.set_up(level=level, form=settings.log_format)


def run_here(settings: Settings, work: Callable[[str], Coroutine[Any, Any, T]], *, interrupted: str) -> T:
    """Do work on the existing database in this OS process; Ctrl-C ends it with the note `interrupted`."""
    try:
        with as_operator(settings), existing_database(settings) as found:
            return asyncio.run(work(found.dsn))
    except KeyboardInterrupt:
        note(interrupted)
        raise


def as_operator(settings: Settings) -> AbstractContextManager[None]:
    """Return a block in which the audit notes what is done as done by the user of this command."""
    return acting(settings.actor or _user(), origin=_host(), way=Way.CLI)


def _user() -> str:
    """Return the user of the operating system that runs this command, as the system knows it."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        # In a container the number may have no name.
        return f"uid {number}"


def _host() -> str | None:
    name = socket.gethostname()
    return name if name and name.isprintable() else None
