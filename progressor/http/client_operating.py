"""The methods of HttpClient for operators: namespaces paused and resumed, and bulks."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import Any

import httpx
from pydantic import TypeAdapter
from pydantic_core import to_json

from progressor.bulks import Bulk, BulkPreview
from progressor.http import headers
from progressor.inputs import check_count, check_namespace, check_text
from progressor.model import LAST_ID

_BULK = TypeAdapter(Bulk)
_BULKS = TypeAdapter(list[Bulk])
_PREVIEW = TypeAdapter(BulkPreview)


class HttpOperating(ABC):
    """The part of HttpClient that concerns more than one process."""

    @abstractmethod
    async def _operate(self, method: str, url: str, **request: Any) -> httpx.Response: ...

    async def pause(self, namespace: str) -> None:
        """As Client.pause."""
        await self._operate("POST", f"/v1/namespaces/{check_namespace(namespace)}/pause")

    async def resume(self, namespace: str) -> None:
        """As Client.resume."""
        await self._operate("POST", f"/v1/namespaces/{check_namespace(namespace)}/resume")

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
            {"namespace": check_namespace(namespace), "args": args, **wanted},
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
        return _BULK.validate_json((await self._operate("GET", _url(bulk_id))).content)

    async def bulks(self, *, limit: int = 100) -> list[Bulk]:
        """As Client.bulks."""
        answer = await self._operate("GET", "/v1/bulk", params={"limit": limit})
        return _BULKS.validate_python(answer.json()["bulks"])

    async def stop_bulk(self, bulk_id: int) -> Bulk:
        """As Client.stop_bulk."""
        return _BULK.validate_json((await self._operate("POST", f"{_url(bulk_id)}/stop")).content)

    async def _make(self, asked: dict[str, Any], said: dict[str, str]) -> httpx.Response:
        sent = {"Content-Type": headers.JSON, **said}
        return await self._operate("POST", "/v1/bulk", content=to_json(asked), headers=sent)


def _url(bulk_id: int) -> str:
    return f"/v1/bulk/{check_count('bulk_id', bulk_id, least=1, most=LAST_ID)}"
