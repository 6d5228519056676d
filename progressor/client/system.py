"""The system of a client: its health, the figures of its database, the doctor's examination, its settings.

Rule: health is known in time, whatever does not answer. An examination has an end, and there is one at a
time. Settings are shown without secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial

from pydantic import SecretStr

from progressor.client.results import Health
from progressor.errors import InvalidRequest
from progressor.monitoring import DatabaseFigures
from progressor.node.node import Node
from progressor.storage import longest_outage, schema_check
from progressor.storage.doctor import Report, examine
from progressor.supervision import in_thread
from progressor.texts import duration


async def health_within(ask: Callable[[], Awaitable[Health]], seconds: float) -> Health:
    """Return the health of this OS process's database; not ok if it is not known within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await ask()
    except TimeoutError:
        outage = longest_outage()
    if outage is None:
        return Health(
            False,
            f"PostgreSQL did not answer within {seconds:g} s, without an error: it is slow, or the network "
            "is, or all connections of this OS process are taken",
            0,
            (),
            fault="database",
        )
    lasts = round(outage.seconds, 1)
    says = f"PostgreSQL has not been available for {duration(timedelta(seconds=lasts))}: {outage.cause}"
    return Health(False, says, 0, (), fault="database", fault_seconds=lasts)


class SystemReader:
    """The looks of one client at its system."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._examining = asyncio.Lock()

    async def database(self) -> DatabaseFigures:
        """Return what PostgreSQL counts of the database; raise StorageUnavailable if it does not answer."""
        storage = await self._node.connected()
        return await storage.database_figures()

    @property
    def needed_revision(self) -> str:
        """The revision of the schema that this release makes."""
        return schema_check.head()

    @property
    def settings(self) -> Mapping[str, object]:
        """The options of this client by their names; of a secret, only whether it is set."""
        options = self._node.options
        named = {name: getattr(options, name) for name in sorted(type(options).model_fields)}
        return {name: "set" if isinstance(each, SecretStr) else each for name, each in named.items()}

    async def examine(self, *, within: timedelta) -> Report:
        """Return what the doctor's quick checks find, in a snapshot that lasts `within` this time at most.

        Raise InvalidRequest while another examination runs, StorageUnavailable and SchemaMismatch.
        """
        if self._examining.locked():
            raise InvalidRequest("another examination runs: ask again when it has ended")
        async with self._examining:
            await self._node.connected()
            options = self._node.options
            look = partial(
                examine,
                self._node.dsn,
                quick=True,
                within=within,
                schema=options.database_schema,
                lease_age=options.lease_age,
            )
            return await in_thread("doctor", look)
