"""The operator's methods of HttpClient: whole namespaces, failures in them, who serves them, bulks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from progressor.acts import AuditEntry, AuditPage, check_filter, check_line
from progressor.bulks import Bulk, BulkPreview
from progressor.client.failure_groups import EVER, FailureGroup
from progressor.config import MOST_OF_A_GROUP, Retention, check_deleting, check_retention
from progressor.http.client.requests import process_url
from progressor.http.client.transport import RetryingTransport
from progressor.http.wire import headers
from progressor.http.wire.members import members_for
from progressor.http.wire.paths import segment_of
from progressor.inputs import LAST_ID, check_count, check_key, check_namespace, check_text, new_key
from progressor.monitoring import (
    KnownGroup,
    KnownNamespace,
    KnownRetention,
    KnownWorker,
    Mailbox,
    NamespaceStatus,
    RetentionEstimate,
)

T = TypeVar("T")

_NOUNS = (
    *(AuditEntry, Bulk, BulkPreview, FailureGroup, KnownGroup, KnownNamespace, KnownRetention, KnownWorker),
    *(Mailbox, NamespaceStatus, RetentionEstimate),
)
_READERS: Mapping[type[Any], TypeAdapter[Any]] = {noun: TypeAdapter(noun) for noun in _NOUNS}


class HttpOperating:
    """The methods of HttpClient that concern more than one process.

    Each is tried again until the client's `timeout` is over, `retire` excepted. Errors are those of Client
    and HttpClient; each method raises NamespaceNotFound for a namespace that is not known.
    """

    _line: RetryingTransport

    async def pause(self, namespace: str, reason: str | None = None) -> None:
        """Pause a namespace, as Client.pause; raise NamespaceNotFound."""
        params = {"reason": None if reason is None else check_line("reason", reason)}
        await self._line.send("POST", f"/v1/namespaces/{check_namespace(namespace)}/pause", params=params)

    async def resume(self, namespace: str) -> None:
        """Let a paused namespace go on, as Client.resume; raise NamespaceNotFound."""
        await self._line.send("POST", f"/v1/namespaces/{check_namespace(namespace)}/resume")

    async def retire(self, namespace: str) -> None:
        """Forget a namespace, as Client.retire; sent once. Raise NamespaceInUse, NamespaceNotFound."""
        await self._line.once("POST", f"/v1/namespaces/{check_namespace(namespace)}/retire")

    async def namespaces(self) -> list[KnownNamespace]:
        """Return the namespaces that the token may see, as Client.namespaces."""
        return await self._listed(KnownNamespace, "/v1/namespaces", "namespaces")

    async def workers(self) -> list[KnownWorker]:
        """Return the OS processes that have a heartbeat, as Client.workers."""
        return await self._listed(KnownWorker, "/v1/workers", "workers")

    async def groups(
        self, namespace: str, *, after: str | None = None, limit: int = 100
    ) -> list[KnownGroup]:
        """Return groups of a namespace, as Client.groups; raise NamespaceNotFound."""
        url = f"/v1/namespaces/{check_namespace(namespace)}/groups"
        return await self._listed(KnownGroup, url, "groups", after=after, limit=str(limit))

    async def set_group_limit(self, namespace: str, group: str, limit: int | None) -> None:
        """Set the limit of a group, as Client.set_group_limit; raise NamespaceNotFound."""
        most = None if limit is None else check_count("limit", limit, least=0, most=MOST_OF_A_GROUP)
        segment = segment_of(check_text("group", group))
        url = f"/v1/namespaces/{check_namespace(namespace)}/groups/{segment}/limit"
        await self._line.send("PUT", url, params={"limit": most})

    async def retention(self, namespace: str) -> KnownRetention:
        """Return for how long a namespace keeps what has ended, as Client.retention."""
        return await self._read(KnownRetention, "GET", _retention_url(namespace))

    async def set_retention(self, namespace: str, retention: Retention | None) -> None:
        """Keep what has ended for these times, as Client.set_retention; raise NamespaceNotFound."""
        url = _retention_url(namespace)
        wanted = check_retention(retention)
        if wanted is None:
            await self._line.send("DELETE", url)
        else:
            archive = {"archive": "true"} if wanted.archive else {}
            await self._line.send("PUT", url, params=_times(wanted) | archive)

    async def estimate_retention(
        self, namespace: str, retention: Retention | None = None
    ) -> RetentionEstimate:
        """Return what a retention would delete now, as Client.estimate_retention."""
        url, params = f"{_retention_url(namespace)}/estimate", _times(check_deleting(retention))
        return await self._read(RetentionEstimate, "GET", url, params=params)

    async def begin_retention(self, namespace: str) -> None:
        """Have a walk begin now, as Client.begin_retention; raise NamespaceNotFound."""
        await self._line.send("POST", f"{_retention_url(namespace)}/run")

    async def status(self, namespace: str | None = None) -> list[NamespaceStatus]:
        """Return the status of the namespaces that the token may see, as Client.status.

        Raise NamespaceNotFound if `namespace` is not known.
        """
        wanted = {"namespace": _checked(namespace)}
        return await self._listed(NamespaceStatus, "/v1/status", "namespaces", **wanted)

    async def mailbox(self, namespace: str, process_id: str) -> Mailbox:
        """Return the mailbox of a process, as Client.mailbox; raise ProcessNotFound."""
        return await self._read(Mailbox, "GET", f"{process_url(namespace, process_id)}/mailbox")

    async def errors(
        self, *, namespace: str | None = None, since: datetime | timedelta | None = None
    ) -> list[FailureGroup]:
        """Return failures in groups, of the namespaces that the token may see, as Client.errors.

        Raise InvalidRequest if `since` is a negative duration or a time without tzinfo, and
        NamespaceNotFound if `namespace` is not known.
        """
        wanted = {"namespace": _checked(namespace), "since": _since(since)}
        return await self._listed(FailureGroup, "/v1/errors", "groups", **wanted)

    async def audit(
        self,
        namespace: str | None = None,
        *,
        process_id: str | None = None,
        verb: str | None = None,
        since: datetime | timedelta | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return a page of the audit, of the namespaces that the token may see, as Client.audit."""
        check_filter(namespace, process_id, verb)
        params = {
            "namespace": namespace,
            "process_id": process_id,
            "verb": verb,
            "since": _since(since),
            "limit": str(limit),
            "cursor": cursor,
        }
        answer = (await self._line.send("GET", "/v1/audit", params=params)).json()
        entries = [_READERS[AuditEntry].validate_python(each) for each in answer["entries"]]
        return AuditPage(entries, answer["cursor"])

    async def _listed(self, of: type[T], url: str, member: str, **asked: str | None) -> list[T]:
        answer = await self._line.send("GET", url, params=asked)
        return [_READERS[of].validate_python(each) for each in answer.json()[member]]

    async def _read(self, of: type[T], method: str, url: str, **request: Any) -> T:
        answer = await self._line.send(method, url, **request)
        found: T = _READERS[of].validate_json(answer.content)
        return found

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
        """Make a bulk, as Client.repair_all; raise InvalidRequest and NamespaceNotFound as it does."""
        key = new_key() if idempotency_key is None else check_key(idempotency_key)
        wanted = {"detail_like": detail_like, "handler": handler}
        how = {"simple": simple, "redo": redo, "rate": rate}
        asked = {"namespace": check_namespace(namespace), **members_for("args", args), **how, **wanted}
        return await self._make(Bulk, asked, {headers.IDEMPOTENCY_KEY: headers.shown_key(key)})

    async def preview_repair_all(
        self, namespace: str, *, detail_like: str | None = None, handler: str | None = None
    ) -> BulkPreview:
        """Return what a bulk would repair, as Client.preview_repair_all; raise NamespaceNotFound."""
        wanted = {"detail_like": detail_like, "handler": handler, "dry_run": True}
        return await self._make(BulkPreview, {"namespace": check_namespace(namespace), **wanted}, {})

    async def bulk(self, bulk_id: int) -> Bulk:
        """Return a bulk as it is now, as Client.bulk; raise BulkNotFound."""
        return await self._read(Bulk, "GET", _url(bulk_id))

    async def bulks(self, *, limit: int = 100) -> list[Bulk]:
        """Return the newest bulks that the token may see, as Client.bulks."""
        return await self._listed(Bulk, "/v1/bulk", "bulks", limit=str(limit))

    async def stop_bulk(self, bulk_id: int) -> Bulk:
        """Stop a bulk, as Client.stop_bulk; raise BulkNotFound."""
        return await self._read(Bulk, "POST", f"{_url(bulk_id)}/stop")

    async def _make(self, of: type[T], asked: dict[str, Any], said: dict[str, str]) -> T:
        sent = {"Content-Type": headers.JSON, **said}
        return await self._read(of, "POST", "/v1/bulk", content=to_json(asked), headers=sent)


def _checked(namespace: str | None) -> str | None:
    return None if namespace is None else check_namespace(namespace)


def _since(since: datetime | timedelta | None) -> str | None:
    if isinstance(since, timedelta):
        return f"{min(since, EVER).total_seconds():f}"
    return None if since is None else since.isoformat()


def _url(bulk_id: int) -> str:
    return f"/v1/bulk/{check_count('bulk_id', bulk_id, least=1, most=LAST_ID)}"


def _retention_url(namespace: str) -> str:
    return f"/v1/namespaces/{check_namespace(namespace)}/retention"


def _times(retention: Retention | None) -> dict[str, str]:
    """Return the parameters of these times: ISO 8601, or a number of events."""
    if retention is None:
        return {}
    times = retention.model_dump(mode="json", exclude_none=True, exclude={"archive"})
    return {name: str(value) for name, value in times.items()}
