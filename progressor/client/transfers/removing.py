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
from progressor.errors import InvalidRequest, StorageUnavailable, process_not_found
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
        none is removed. What PostgreSQL refuses to delete, or cannot delete in time, stays, and its receipt
        has the error.

        Raise InvalidRequest without a filter, for empty `metadata`, which all processes have, and for a bad
        filter or cursor; NamespaceNotFound; and StorageUnavailable if PostgreSQL removes none of the page.
        """
        check_namespace(namespace)
        if metadata is None and status is None:
            raise InvalidRequest("say which processes: metadata, or status", field="metadata")
        if metadata == {}:
            raise InvalidRequest("metadata must not be empty: all processes have it", field="metadata")
        found, following = await self.reader.search(
            namespace=namespace,
            namespaces=None,
            status=status,
            metadata=metadata,
            limit=PAGE if limit is None else limit,
            cursor=cursor,
            states=False,
        )
        if dry_run:
            return RemovalPage([receipt_of(each) for each in found], following)
        return RemovalPage(await self._removals(found), following)

    async def _removals(self, found: list[Snapshot]) -> list[Removal]:
        """Remove processes as they were found; return the receipts of all but those that went before.

        Raise StorageUnavailable if PostgreSQL removes none of them.
        """
        receipts: list[Removal] = []
        for place in range(0, len(found), _AT_ONCE):
            some = found[place : place + _AT_ONCE]
            # Each comes to its end, also if another one fails.
            ends = await asyncio.gather(*map(self._removal, some), return_exceptions=True)
            failures = [end for end in ends if isinstance(end, StorageUnavailable)]
            for process, end in zip(some, ends, strict=True):
                match end:
                    case StorageUnavailable():
                        receipts.append(receipt_of(process, error=str(end)))
                    case BaseException():
                        raise end
                    case Removal():
                        receipts.append(end)
            if len(failures) == len(some):
                # An outage: the others are not tried, and what was removed before gets its receipts.
                if not any(each.removed_at for each in receipts):
                    raise failures[0]
                untried = found[place + _AT_ONCE :]
                return receipts + [receipt_of(each, error=str(failures[0])) for each in untried]
        return receipts

    async def _removal(self, process: Snapshot) -> Removal | None:
        """Remove a process as it was found; return its receipt, None if somebody else was faster."""
        try:
            if not await self._remove(process.namespace, process.process_id, process.life):
                return None
        except InvalidRequest as error:
            return receipt_of(process, error=str(error))
        clock = self._node.clock
        return receipt_of(process, removed_at=datetime.now(UTC) if clock is None else clock())

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


def receipt_of(
    process: Snapshot, *, removed_at: datetime | None = None, error: str | None = None
) -> Removal:
    """Return the receipt of a process as it was found; without `removed_at` it is not removed."""
    events = process.last_event_id - process.first_event_id + 1
    return Removal(process.namespace, process.process_id, process.created_at, events, removed_at, error)
