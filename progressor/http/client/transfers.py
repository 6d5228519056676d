"""The transfers of HttpClient: processes exported and imported whole, as lines of JSON, and removed."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from progressor.archive.pages import ExportPage, ImportOutcome
from progressor.archive.records import PlaceRecord, WholeProcess, read_line, write_line
from progressor.archive.wholes import read_wholes
from progressor.client.results import Removal, RemovalPage
from progressor.errors import InvalidRequest
from progressor.http.client.requests import metadata_in_query
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.inputs import check_namespace
from progressor.model import Metadata

_REMOVALS = TypeAdapter(list[Removal])


class TransferMethods:
    """The methods of HttpClient that move processes whole, or remove many."""

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
        """Return a page of whole processes, as Client.export_processes; 20 by default.

        The token needs the scopes admin, processes:read, state:read and errors:read.
        """
        params = {
            "process_id": process_id,
            "metadata": metadata_in_query(metadata),
            "status": status,
            "limit": limit,
            "cursor": cursor,
        }
        url = f"/v1/namespaces/{check_namespace(namespace)}/export"
        answer = await self._line.send("GET", url, params=params)
        lines = answer.content.splitlines()
        last = read_line(lines[-1], number=len(lines)) if lines else None
        following = last.cursor if isinstance(last, PlaceRecord) else None
        return ExportPage(list(read_wholes(lines)), following)

    async def import_processes(self, processes: Sequence[WholeProcess]) -> list[ImportOutcome]:
        """Write whole processes in one transaction, and return what came of each, as Client does.

        They are of one namespace, or InvalidRequest is raised. The token needs the scopes admin and
        processes:put, also in each namespace to which a message of theirs goes.
        """
        names = sorted({each.process.namespace for each in processes})
        if len(names) != 1:
            raise InvalidRequest("they must be of one namespace, and one at least", field="processes")
        content = b"".join(write_line(record) for whole in processes for record in whole.records())
        said = {"Content-Type": headers.LINES}
        url = f"/v1/namespaces/{names[0]}/import"
        answer = await self._line.send("POST", url, content=content, headers=said)
        return [ImportOutcome(each) for each in answer.json()["outcomes"]]

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
        """Remove the next processes that match, and return a receipt of each, as Client.remove_processes.

        It is sent once. The token needs the scopes processes:remove and processes:read.
        """
        params = {
            "metadata": metadata_in_query(metadata),
            "status": status,
            "limit": limit,
            "cursor": cursor,
            "dry_run": "true" if dry_run else None,
        }
        url = f"/v1/namespaces/{check_namespace(namespace)}/processes"
        page = (await self._line.once("DELETE", url, params=params)).json()
        return RemovalPage(_REMOVALS.validate_python(page["removals"]), page["cursor"])
