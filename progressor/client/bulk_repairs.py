"""The methods of a client on bulks: they check a bulk and store it, its args sealed for its namespace.

Rule: nothing is repaired here. A bulk runner repairs in the background, wherever zombies are collected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic_core import to_json

from progressor.acts import AuditVerb
from progressor.bulks import Bulk, BulkPreview
from progressor.client.asks import RequestOptions
from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.reader import Reader
from progressor.client.requests import SIMPLE_REPAIR
from progressor.codecs.codec import ANY_PROCESS
from progressor.errors import BulkNotFound, IdempotencyConflict, InvalidRequest
from progressor.inputs import LAST_ID, check_bulk_filter, check_count
from progressor.model import TaskType
from progressor.node.node import Node
from progressor.rights import check_patterns
from progressor.storage import NewBulk

MOST_BULKS = 1000
LEAST_RATE, MOST_RATE = 1 / 3600, 1000.0


class BulkRepairing:
    """The methods of Client on bulks."""

    _node: Node
    _dispatcher: Dispatcher
    reader: Reader

    async def repair_all(
        self,
        namespace: str,
        args: Any = None,
        *,
        detail_like: str | None = None,
        handler: str | None = None,
        simple: bool = False,
        redo: bool = False,
        rate: float = 50.0,
        idempotency_key: str | None = None,
    ) -> Bulk:
        """Repair all processes that are broken now and match, in the background, `rate` a second.

        With `redo`, the call or notify that broke a process is run again, once, as by `Client.redo`, when
        the process is repaired, and after it those that were cancelled because it broke. A key that was
        used before for the same bulk returns that bulk. Raise IdempotencyConflict if it was used for
        another one, InvalidRequest if `simple` has args, or if the namespace has no repair handler and the
        repair is not `simple`, and NamespaceNotFound.
        """
        check_bulk_filter(detail_like, handler)
        check_bulk_args(args, simple=simple)
        pace = _pace(rate)
        name = SIMPLE_REPAIR if simple else None
        # A request to no process: the bulk runner makes the one to each process from it.
        options = RequestOptions(idempotency_key)
        given = None if simple else args
        request = self._dispatcher.make(TaskType.REPAIR, namespace, "bulk", given, options, name)
        asked = [namespace, detail_like, handler, simple, redo, pace, request.request_hash.hex()]
        sealed = await self._dispatcher.sealed(request._replace(process_id=ANY_PROCESS))
        if not simple:
            await self._require_repair_handler(namespace)
        made = await self._node.storage.make_bulk(
            NewBulk(
                namespace=namespace,
                detail_like=detail_like,
                handler=handler,
                simple=simple,
                redo=redo,
                args=sealed.args,
                request_hash=request.request_hash,
                idempotency_key=request.idempotency_key,
                bulk_hash=hashlib.sha256(to_json(asked)).digest()[:16],
                pace=pace,
            ),
            act=self._node.act(AuditVerb.REPAIR_ALL),
        )
        if made.is_another:
            raise IdempotencyConflict(namespace, None, request.idempotency_key)
        return made.bulk

    async def _require_repair_handler(self, namespace: str) -> None:
        row = await self._node.storage.namespace(namespace)
        # Workers of older releases do not say whether they have one.
        if row is not None and not row.options.get("raw") and row.options.get("has_repair") is False:
            raise InvalidRequest(
                f"namespace {namespace} has no repair handler: repair simply, or decorate a function with "
                "@namespace.repair",
                field="simple",
            )

    async def preview_repair_all(
        self, namespace: str, *, detail_like: str | None = None, handler: str | None = None
    ) -> BulkPreview:
        """Return how many processes `repair_all` would repair, in groups, with examples; write nothing.

        Raise NamespaceNotFound if the namespace is not known.
        """
        await self.reader.check_preview(namespace, detail_like=detail_like, handler=handler)
        return await self._node.storage.preview_bulk(namespace, detail_like=detail_like, handler=handler)

    async def bulk(self, bulk_id: int) -> Bulk:
        """Return a bulk as it is now, with what is left; raise BulkNotFound if there is none."""
        check_count("bulk_id", bulk_id, least=1, most=LAST_ID)
        storage = await self._node.connected()
        bulk = await storage.bulk(bulk_id)
        if bulk is None:
            raise BulkNotFound(bulk_id)
        return bulk

    async def bulks(self, *, limit: int = 100, namespaces: Sequence[str] | None = None) -> list[Bulk]:
        """Return the newest bulks, without what is left of them.

        `namespaces` are patterns, in which * stands for any characters: bulks of others are left out.
        """
        check_count("limit", limit, least=1, most=MOST_BULKS)
        patterns = None if namespaces is None else check_patterns("namespaces", namespaces)
        storage = await self._node.connected()
        return await storage.bulks(limit=limit, namespaces=patterns)

    async def stop_bulk(self, bulk_id: int) -> Bulk:
        """Begin no more repairs of a bulk, from when this returns; those under way go on.

        Return the bulk as it is then; raise BulkNotFound if there is none.
        """
        check_count("bulk_id", bulk_id, least=1, most=LAST_ID)
        storage = await self._node.connected()
        await storage.stop_bulk(bulk_id, act=self._node.act(AuditVerb.STOP_BULK))
        return await self.bulk(bulk_id)


def check_bulk_args(args: Any, *, simple: bool) -> None:
    """Raise InvalidRequest for args of a bulk whose repairs run no handler."""
    if simple and args is not None:
        raise InvalidRequest("a simple repair runs no handler, so it takes no args", field="args")


def _pace(rate: object) -> timedelta:
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not LEAST_RATE <= rate <= MOST_RATE:  # type: ignore[operator] # a number by now
        raise InvalidRequest(
            f"rate must be a number of repairs per second from one an hour to {MOST_RATE:g}", field="rate"
        )
    return timedelta(seconds=1 / rate)  # type: ignore[operator] # likewise
