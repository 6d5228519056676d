"""Parts of monitoring and bulks that a caller sees: no hidden namespace, and no hidden text of a failure.

Rule: what is hidden is left out of a noun, never a reason to refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from progressor.bulks import BrokenGroup, Bulk, BulkPreview
from progressor.client.failure_groups import FailureGroup
from progressor.http.server.auth.principals import Principal
from progressor.monitoring import KnownWorker
from progressor.rights import Scope


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def namespaces_for(caller: Principal, found: Iterable[NamedT]) -> list[NamedT]:
    """Return those of the namespaces that the caller sees."""
    return [each for each in found if caller.may(Scope.PROCESSES_READ, each.name)]


def failures_for(caller: Principal, found: Iterable[FailureGroup]) -> list[FailureGroup]:
    """Return those of the failures that the caller may read."""
    return [each for each in found if caller.may(Scope.ERRORS_READ, each.namespace)]


def workers_for(caller: Principal, found: Iterable[KnownWorker]) -> list[KnownWorker]:
    """Return the workers with the namespaces that the caller sees; none that serves others alone."""
    return [
        _worker_for(caller, each)
        for each in found
        # A zombie collector serves no namespace.
        if not each.namespaces or any(caller.may(Scope.ADMIN, name) for name in each.namespaces)
    ]


def _worker_for(caller: Principal, worker: KnownWorker) -> KnownWorker:
    seen = tuple(name for name in worker.namespaces if caller.may(Scope.ADMIN, name))
    slots = {name: free for name, free in worker.free_slots.items() if name in seen}
    return replace(worker, namespaces=seen, free_slots=slots)


def bulk_for(caller: Principal, found: Bulk) -> Bulk:
    """Return a bulk, without the texts of failures if the caller may not read them."""
    if caller.may(Scope.ERRORS_READ, found.namespace):
        return found
    # A filter may quote the text of a failure, too.
    return replace(found, last_error=None, detail_like=None)


def preview_for(caller: Principal, namespace: str, found: BulkPreview) -> BulkPreview:
    """Return a preview, without the messages and the examples that the caller may not read."""
    groups = found.groups
    if not caller.may(Scope.ERRORS_READ, namespace):
        groups = _without_messages(groups)
    if not caller.may(Scope.PROCESSES_READ, namespace):
        groups = tuple(replace(group, examples=()) for group in groups)
    return replace(found, groups=groups)


def _without_messages(groups: Iterable[BrokenGroup]) -> tuple[BrokenGroup, ...]:
    """Return one group for each handler: even the number of messages is for callers who may read them."""
    merged: dict[str | None, BrokenGroup] = {}
    for group in groups:
        known = merged.get(group.handler)
        merged[group.handler] = replace(
            known or group,
            detail="",
            processes=group.processes + (known.processes if known else 0),
            first_broken=min(group.first_broken, (known or group).first_broken),
            last_broken=max(group.last_broken, (known or group).last_broken),
        )
    return tuple(sorted(merged.values(), key=lambda group: -group.processes))
