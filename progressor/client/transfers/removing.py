"""Removals: one process by its name, or all that match, a page at a time.

Rule: of a page each process is removed as it was found: what is started under its name meanwhile stays.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from progressor import metrics
from progressor.acts import AuditVerb
from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.reader import Reader
from progressor.client.results import Removal, RemovalPage
from progressor.errors import InvalidRequest, process_not_found
from progressor.inputs import check_namespace, check_text
from progressor.model import Life, Metadata, Snapshot
from progressor.node.node import Node

PAGE = 100
"""The processes of a page, unless another number is given."""
# Removals under way at once.
_AT_ONCE = 16


class Removing:
    """The methods of Client that remove processes."""

    _node: Node
    _dispatcher: Dispatcher
    reader: Reader

    async def remove(self, namespace: str, process_id: str) -> None:
        """Remove a process with all its rows now, whatever it does; its callers get ProcessNotFound.

        Raise ProcessNotFound if there is no such process.
        """
        check_namespace(namespace)
        check_text("process_id", process_id)
        await self._node.connected()
        if not await self._remove(namespace, process_id, None):
            await self._dispatcher.check_namespace(namespace)
            raise process_not_found(namespace, process_id)

    async def remove_processes(
        self,
        namespace: str,
        *,
        metadata: Metadata | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
    ) -> RemovalPage:
        """Remove the next processes that match, as `remove` does; return a receipt of each, and a cursor.

        They go in the order of their creation, at most `limit`, 100 by default, up to 1,000. With `dry_run`
        none is removed. What PostgreSQL refuses to delete stays, and its receipt has the error.

        Raise InvalidRequest without a filter (`metadata` that is not empty, or `status`), and for a bad
        filter or cursor; NamespaceNotFound; and StorageUnavailable: the audit has what was removed by then.
        """
        if not metadata and status is None:
            raise InvalidRequest("say which processes: metadata, or status", field="metadata")
        found, following = await self.reader.search(
            namespace=check_namespace(namespace),
            namespaces=None,
            status=status,
            metadata=metadata,
            timer=None,
            created_after=None,
            created_before=None,
            limit=PAGE if limit is None else limit,
            cursor=cursor,
            states=False,
        )
        if dry_run:
            return RemovalPage([_receipt(each) for each in found], following)
        receipts: list[Removal] = []
        for place in range(0, len(found), _AT_ONCE):
            some = found[place : place + _AT_ONCE]
            # Each comes to its end, also if another one fails.
            ends = await asyncio.gather(*map(self._removal, some), return_exceptions=True)
            for end in ends:
                if isinstance(end, BaseException):
                    raise end
                receipts += end
        return RemovalPage(receipts, following)

    async def _removal(self, process: Snapshot) -> list[Removal]:
        """Remove a process as it was found; return its receipt, none if somebody else was faster."""
        try:
            if not await self._remove(process.namespace, process.process_id, process.life):
                return []
        except InvalidRequest as error:
            return [_receipt(process, error=str(error))]
        clock = self._node.clock
        return [_receipt(process, removed_at=datetime.now(UTC) if clock is None else clock())]

    async def _remove(self, namespace: str, process_id: str, life: Life | None) -> bool:
        """Remove a process, this life of it or the one that there is; return whether there was one."""
        began = time.monotonic()
        removed = await self._node.storage.remove(
            namespace, process_id, life, act=self._node.act(AuditVerb.REMOVE)
        )
        if removed.existed:
            metrics.took(metrics.PROCESS_REMOVING, began, namespace)
        for ref in removed.cancelled:
            self._node.replies.look(ref)
        return removed.existed


def _receipt(process: Snapshot, *, removed_at: datetime | None = None, error: str | None = None) -> Removal:
    events = process.last_event_id - process.first_event_id + 1
    return Removal(process.namespace, process.process_id, process.created_at, events, removed_at, error)
