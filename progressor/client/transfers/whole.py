"""Transfers: processes exported whole, and imported whole into this or another database.

Rule: a page, and a batch, is held in memory: it is bounded in processes. A page of several processes is
bounded in their rows and the bytes of their values, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from progressor.acts import AuditVerb
from progressor.archive.pages import ExportPage, ImportOutcome
from progressor.archive.records import WholeProcess
from progressor.client.dispatch.dispatcher import Dispatcher
from progressor.client.reader import Reader
from progressor.errors import InvalidRequest, process_not_found
from progressor.inputs import check_count, check_namespace, check_text
from progressor.model import Metadata
from progressor.node.node import Node
from progressor.storage import KINDS

MOST_WHOLE = 1_000
"""The most processes of a page or a batch."""
PAGE = 100
"""The processes of a page, unless another number is given."""
ROWS, BYTES = 10_000, 16 << 20
"""The tasks and events of a page of more than one process, and the bytes of their values."""


class Transferring:
    """The methods of Client that move processes whole."""

    _node: Node
    _dispatcher: Dispatcher
    reader: Reader

    async def export_processes(
        self,
        namespace: str,
        *,
        process_id: str | None = None,
        metadata: Metadata | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ExportPage:
        """Return a page of processes with all that belongs to them, in the order of their creation.

        Each page is as of one moment; it has fewer of them where they have thousands of tasks and events,
        or large values.
        Values are as they are stored: encoded, if the namespace has a codec. With a `process_id`, and then
        without filter and cursor, it is this one alone. Raise ProcessNotFound if there is none,
        NamespaceNotFound, and InvalidRequest for a bad filter or a bad cursor.
        """
        check_namespace(namespace)
        wanted = check_count("limit", PAGE if limit is None else limit, least=1, most=MOST_WHOLE)
        if process_id is not None:
            check_text("process_id", process_id)
            if (metadata, status, cursor) != (None, None, None):
                raise InvalidRequest(
                    "process_id names one process: give no filter and no cursor with it", field="process_id"
                )
            storage = await self._node.connected()
            one = await self._dispatcher.found(namespace, process_id)
            whole = await storage.whole([one.life])
            if not whole:
                raise process_not_found(namespace, process_id)
            return ExportPage(whole, None)
        search = partial(
            self.reader.search,
            namespace=namespace,
            namespaces=None,
            status=status,
            metadata=metadata,
            cursor=cursor,
            states=False,
        )
        found, following = await search(limit=wanted)
        lives = [each.life for each in found]
        if not lives:
            return ExportPage([], following)
        fitting = await self._node.storage.fitting(lives, rows=ROWS, size=BYTES)
        if fitting < len(lives):
            found, following = await search(limit=fitting)
            lives = [each.life for each in found]
        return ExportPage(await self._node.storage.whole(lives), following)

    async def import_processes(self, processes: Sequence[WholeProcess]) -> list[ImportOutcome]:
        """Write whole processes in one transaction, and return what came of each.

        One whose name is taken is left alone, so an import can be repeated. What waits is run here:
        requests, timers at their times, and what ran when it was exported. Answers and keys are kept; tasks
        get new numbers. `read_wholes` checks what a file has. Raise NamespaceNotFound if no worker ever
        served the namespace of one of them; then none is imported.
        """
        names = {(each.process.namespace, each.process.process_id) for each in processes}
        if len(names) < len(processes):
            raise InvalidRequest("each process must be there once", field="processes")
        check_count("processes", len(processes), least=0, most=MOST_WHOLE)
        storage = await self._node.connected()
        for namespace in {namespace for namespace, _ in names}:
            await self._dispatcher.check_namespace(namespace)
        acts = [self._node.act(AuditVerb.IMPORT) for _ in processes]
        outcomes = await storage.import_processes(processes, acts=acts)
        for namespace in {namespace for namespace, _ in names}:
            await self._node.wake_workers(namespace, *KINDS)
        return outcomes
