"""The methods of HttpClient for operators: whole namespaces, what fails in them, who serves them, bulks."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from progressor.bulks import Bulk, BulkPreview
from progressor.client.failure_groups import EVER, FailureGroup
from progressor.handlers.members import members_for
from progressor.http.client.exchange import Answer
from progressor.http.client.requests import process_url
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.inputs import check_count, check_namespace, check_text
from progressor.model import LAST_ID
from progressor.monitoring import KnownNamespace, KnownWorker, Mailbox, NamespaceStatus

T = TypeVar("T")

_BULK = TypeAdapter(Bulk)
_BULKS = TypeAdapter(list[Bulk])
_PREVIEW = TypeAdapter(BulkPreview)
_NAMESPACES = TypeAdapter(list[KnownNamespace])
_WORKERS = TypeAdapter(list[KnownWorker])
_MAILBOX = TypeAdapter(Mailbox)
_STATUSES = TypeAdapter(list[NamespaceStatus])
_GROUPS = TypeAdapter(list[FailureGroup])


class HttpOperating:
    """The part of HttpClient that concerns more than one process."""

    _line: RetryingTransport

    async def pause(self, namespace: str, reason: str | None = None) -> None:
        """As Client.pause."""
        params = {} if reason is None else {"reason": check_text("reason", reason)}
        await self._line.send("POST", f"/v1/namespaces/{check_namespace(namespace)}/pause", params=params)

    async def resume(self, namespace: str) -> None:
        """As Client.resume."""
        await self._line.send("POST", f"/v1/namespaces/{check_namespace(namespace)}/resume")

    async def retire(self, namespace: str) -> None:
        """As Client.retire."""
        await self._line.once("POST", f"/v1/namespaces/{check_namespace(namespace)}/retire")

    async def namespaces(self) -> list[KnownNamespace]:
        """As Client.namespaces, of those that the token shows."""
        return await self._listed(_NAMESPACES, "/v1/namespaces", "namespaces")

    async def workers(self) -> list[KnownWorker]:
        """As Client.workers."""
        return await self._listed(_WORKERS, "/v1/workers", "workers")

    async def status(self, namespace: str | None = None) -> list[NamespaceStatus]:
        """As Client.status, of the namespaces that the token shows."""
        return await self._listed(_STATUSES, "/v1/status", "namespaces", namespace=_checked(namespace))

    async def mailbox(self, namespace: str, process_id: str) -> Mailbox:
        """As Client.mailbox."""
        answer = await self._line.send("GET", f"{process_url(namespace, process_id)}/mailbox")
        return _MAILBOX.validate_json(answer.content)

    async def errors(
        self, *, namespace: str | None = None, since: datetime | timedelta | None = None
    ) -> list[FailureGroup]:
        """As Client.errors, of the namespaces that the token shows."""
        begin = since.isoformat() if isinstance(since, datetime) else since
        if isinstance(begin, timedelta):
            begin = f"{min(begin, EVER).total_seconds():f}"
        wanted = {"namespace": _checked(namespace), "since": begin}
        return await self._listed(_GROUPS, "/v1/errors", "groups", **wanted)

    async def _listed(self, of: TypeAdapter[T], url: str, member: str, **asked: str | None) -> T:
        params = {name: value for name, value in asked.items() if value is not None}
        answer = await self._line.send("GET", url, params=params)
        return of.validate_python(answer.json()[member])

    async def repair_all(
        self,
        namespace: str,
        args: Any = None,
        *,
        detail_like: str | None = None,
        handler: str | None = None,
        simple: bool = False,
        rate: float = 50.0,
        idempotency_key: str | None = None,
    ) -> Bulk:
        """As Client.repair_all."""
        key = secrets.token_urlsafe(9) if idempotency_key is None else idempotency_key
        wanted = {"detail_like": detail_like, "handler": handler, "simple": simple, "rate": rate}
        answer = await self._make(
            {"namespace": check_namespace(namespace), **members_for("args", args), **wanted},
            {headers.IDEMPOTENCY_KEY: headers.shown_key(check_text("idempotency_key", key))},
        )
        return _BULK.validate_json(answer.content)

    async def preview_repair_all(
        self, namespace: str, *, detail_like: str | None = None, handler: str | None = None
    ) -> BulkPreview:
        """As Client.preview_repair_all."""
        wanted = {"detail_like": detail_like, "handler": handler, "dry_run": True}
        answer = await self._make({"namespace": check_namespace(namespace), **wanted}, {})
        return _PREVIEW.validate_json(answer.content)

    async def bulk(self, bulk_id: int) -> Bulk:
        """As Client.bulk."""
        return _BULK.validate_json((await self._line.send("GET", _url(bulk_id))).content)

    async def bulks(self, *, limit: int = 100) -> list[Bulk]:
        """As Client.bulks."""
        return await self._listed(_BULKS, "/v1/bulk", "bulks", limit=str(limit))

    async def stop_bulk(self, bulk_id: int) -> Bulk:
        """As Client.stop_bulk."""
        return _BULK.validate_json((await self._line.send("POST", f"{_url(bulk_id)}/stop")).content)

    async def _make(self, asked: dict[str, Any], said: dict[str, str]) -> Answer:
        sent = {"Content-Type": headers.JSON, **said}
        return await self._line.send("POST", "/v1/bulk", content=to_json(asked), headers=sent)


def _checked(namespace: str | None) -> str | None:
    return None if namespace is None else check_namespace(namespace)


def _url(bulk_id: int) -> str:
    return f"/v1/bulk/{check_count('bulk_id', bulk_id, least=1, most=LAST_ID)}"
