"""The transfers of HttpClient: processes exported whole, and imported whole, as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from progressor.archive.pages import ExportPage, ImportOutcome
from progressor.archive.records import PlaceRecord, WholeProcess, read_line, write_line
from progressor.archive.wholes import read_wholes
from progressor.errors import InvalidRequest
from progressor.handlers.codec import encode_json, json_object
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.inputs import check_namespace
from progressor.model import Metadata


class TransferMethods:
    """The methods of HttpClient that move processes whole; the token needs the scope admin."""

    _line: RetryingTransport

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
        """Return a page of whole processes, as Client.export_processes; 20 by default."""
        plain = None if metadata is None else encode_json(json_object(metadata, field="metadata"))
        asked: dict[str, Any] = {
            "process_id": process_id,
            "metadata": None if plain is None else plain.decode(),
            "status": status,
            "limit": limit,
            "cursor": cursor,
        }
        params = {name: value for name, value in asked.items() if value is not None}
        url = f"/v1/namespaces/{check_namespace(namespace)}/export"
        answer = await self._line.send("GET", url, params=params)
        lines = answer.content.splitlines()
        last = read_line(lines[-1], number=len(lines)) if lines else None
        following = last.cursor if isinstance(last, PlaceRecord) else None
        return ExportPage(list(read_wholes(lines)), following)

    async def import_processes(self, processes: Sequence[WholeProcess]) -> list[ImportOutcome]:
        """Write whole processes in one transaction, and return what came of each, as Client does.

        They are of one namespace, or InvalidRequest is raised.
        """
        names = sorted({each.process.namespace for each in processes})
        if len(names) != 1:
            raise InvalidRequest("they must be of one namespace, and one at least", field="processes")
        content = b"".join(write_line(record) for whole in processes for record in whole.records())
        said = {"Content-Type": headers.LINES}
        url = f"/v1/namespaces/{names[0]}/import"
        answer = await self._line.send("POST", url, content=content, headers=said)
        return [ImportOutcome(each) for each in answer.json()["outcomes"]]
