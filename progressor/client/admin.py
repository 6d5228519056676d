"""The operator's methods of a client: pause, resume and retire a namespace, see who serves what.

Rule: a change is made in one row of `namespaces`, for all workers at once; the wake after a resume is a
hint, as every other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from progressor.acts import MOST_ENTRIES, AuditPage, AuditVerb, check_filter, check_line, reason_of_block
from progressor.client.dispatch.dispatcher import namespace_not_found
from progressor.client.failure_groups import FailureGroup, grouped
from progressor.client.reader import Reader
from progressor.client.results import Published
from progressor.config import MOST_OF_A_GROUP, Retention, check_deleting, check_retention
from progressor.errors import NamespaceInUse
from progressor.inputs import check_count, check_namespace, check_since, check_text
from progressor.monitoring import (
    KnownGroup,
    KnownNamespace,
    KnownRetention,
    KnownWorker,
    NamespaceStatus,
    RetentionEstimate,
)
from progressor.node.node import Node
from progressor.rights import check_patterns
from progressor.storage import KINDS

T = TypeVar("T")


class AdminMethods:
    """The operator's methods of Client."""

    _node: Node
    reader: Reader

    async def _known(self, namespace: str, found: T | None) -> T:
        """Return what was found of a namespace; raise NamespaceNotFound if that is None, or False."""
        if found is None or found is False:
            raise await namespace_not_found(self._node, namespace)
        return found

    async def pause(self, namespace: str, reason: str | None = None) -> None:
        """Begin no more steps of a namespace; what runs finishes, requests are still accepted and wait.

        `reason` is shown to operators; None: that of the `acting` around this. Raise NamespaceNotFound if
        the namespace is not known.
        """
        why = reason_of_block() if reason is None else check_line("reason", reason)
        await self._set_paused(namespace, True, why)

    async def resume(self, namespace: str) -> None:
        """Let a paused namespace go on, and wake its workers at once for what waits.

        Raise NamespaceNotFound if the namespace is not known.
        """
        await self._set_paused(namespace, False)
        await self._node.wake_workers(namespace, *KINDS)

    async def _set_paused(self, namespace: str, paused: bool, reason: str | None = None) -> None:
        check_namespace(namespace)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.PAUSE if paused else AuditVerb.RESUME, reason=reason)
        await self._known(namespace, await storage.set_paused(namespace, paused, reason, act=act))

    async def retire(self, namespace: str) -> None:
        """Forget a namespace that nobody serves and that has no processes.

        Raise NamespaceInUse if it is served, was registered within the last `lease_age`, or has processes,
        and NamespaceNotFound if it is not known.
        """
        check_namespace(namespace)
        storage = await self._node.connected()
        left = await storage.retire(
            namespace, lease_age=self._node.options.lease_age, act=self._node.act(AuditVerb.RETIRE)
        )
        left = await self._known(namespace, left)
        if not left.is_nothing:
            raise NamespaceInUse(namespace, workers=left.workers, processes=left.processes)

    async def namespaces(self) -> list[KnownNamespace]:
        """Return every namespace that was ever served and is not retired, by name."""
        storage = await self._node.connected()
        return await storage.known_namespaces()

    async def published(self, namespace: str) -> Published:
        """Return the options and JSON schemas that the workers of a namespace have published.

        Raise NamespaceNotFound if the namespace is not known.
        """
        check_namespace(namespace)
        storage = await self._node.connected()
        row = await self._known(namespace, await storage.namespace(namespace))
        return Published(row.name, row.paused, dict(row.options), dict(row.schemas))

    async def workers(self) -> list[KnownWorker]:
        """Return every OS process that has a heartbeat, by host: workers and zombie collectors."""
        storage = await self._node.connected()
        return await storage.all_workers()

    async def groups(
        self, namespace: str, *, after: str | None = None, limit: int = 100
    ) -> list[KnownGroup]:
        """Return the groups of a namespace, by name: up to `limit` (1,000) of those behind `after`.

        Raise NamespaceNotFound if the namespace is not known.
        """
        check_namespace(namespace)
        check_count("limit", limit, least=1, most=1000)
        begin = "" if after is None else check_text("after", after)
        storage = await self._node.connected()
        found = await storage.groups(namespace, after=begin, limit=limit)
        if not found:
            await self._known(namespace, await storage.namespace(namespace))
        return found

    async def set_group_limit(self, namespace: str, group: str, limit: int | None) -> None:
        """Let at most `limit` steps of a group run at once; None: as many as its namespace says.

        A higher limit holds at once. After a lower one what runs ends, and 0 lets none begin. The group
        need not have a process yet. Raise NamespaceNotFound if the namespace is not known.
        """
        check_namespace(namespace)
        check_text("group", group)
        if limit is not None:
            check_count("limit", limit, least=0, most=MOST_OF_A_GROUP)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.SET_GROUP_LIMIT)
        await self._known(namespace, await storage.set_group_limit(namespace, group, limit, act=act))
        await self._node.wake_workers(namespace, "calls")

    async def retention(self, namespace: str) -> KnownRetention:
        """Return for how long a namespace keeps what has ended, and the last walk that deleted the rest.

        Raise NamespaceNotFound if the namespace is not known.
        """
        check_namespace(namespace)
        storage = await self._node.connected()
        return await self._known(namespace, await storage.retention(namespace))

    async def set_retention(self, namespace: str, retention: Retention | None) -> None:
        """Keep what has ended for these times, whatever the code of the namespace says; None: as it says.

        A walk begins at once; what it deletes is gone. Raise NamespaceNotFound if the namespace is not
        known.
        """
        check_namespace(namespace)
        check_retention(retention)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.SET_RETENTION)
        await self._known(namespace, await storage.set_retention(namespace, retention, act=act))

    async def estimate_retention(
        self, namespace: str, retention: Retention | None = None
    ) -> RetentionEstimate:
        """Return an estimate of what a retention would delete now; None: that of the namespace.

        It reads some thousand pages of the tables. Raise NamespaceNotFound if the namespace is not known.
        """
        given, known = check_deleting(retention), await self.retention(namespace)
        wanted = known.retention if given is None else given
        return await self._node.storage.estimate_retention(namespace, wanted)

    async def begin_retention(self, namespace: str) -> None:
        """Have a walk begin now that deletes what the namespace keeps no longer; services make it.

        Raise NamespaceNotFound if the namespace is not known.
        """
        check_namespace(namespace)
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.BEGIN_RETENTION)
        await self._known(namespace, await storage.begin_sweep(namespace, act=act))

    async def status(self, namespace: str | None = None) -> list[NamespaceStatus]:
        """Return what waits, runs and is broken in each namespace, or in this one, and who serves it.

        Raise NamespaceNotFound if `namespace` is not known.
        """
        if namespace is not None:
            check_namespace(namespace)
        storage = await self._node.connected()
        found = await storage.status(namespace)
        return found if namespace is None else await self._known(namespace, found or None)

    async def audit(
        self,
        namespace: str | None = None,
        *,
        process_id: str | None = None,
        verb: str | None = None,
        since: datetime | timedelta | None = None,
        namespaces: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return a page of what operators did, newest first: since a time, or within a duration up to now.

        A namespace and a process may be gone. `namespaces` are patterns, in which * stands for any
        characters: what concerns others, or no namespace, is left out. Raise InvalidRequest for a verb that
        there is not, a bad cursor, or a `limit` above 1,000.
        """
        check_filter(namespace, process_id, verb)
        check_count("limit", limit, least=1, most=MOST_ENTRIES)
        begin, ago = check_since(since)
        patterns = None if namespaces is None else check_patterns("namespaces", namespaces)
        storage = await self._node.connected()
        return await storage.audit(
            namespace=namespace,
            process_id=process_id,
            verb=verb,
            since=begin,
            ago=ago,
            namespaces=patterns,
            limit=limit,
            cursor=cursor,
        )

    async def errors(
        self, *, namespace: str | None = None, since: datetime | timedelta | None = None
    ) -> list[FailureGroup]:
        """Return failures in groups, the largest first: since a time, within a duration up to now, or ever.

        Raise InvalidRequest if `since` is a negative duration or a time without tzinfo, and
        NamespaceNotFound if `namespace` is not known.
        """
        return grouped(await self.reader.failed(namespace, since=since))
