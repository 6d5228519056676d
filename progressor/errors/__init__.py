"""Every error that Progressor raises on purpose, in one tree.

ProgressorError
├── InvalidRequest          the request itself is wrong; nothing was written
│   ├── IdempotencyConflict     the key was used for another request
│   └── CallCycle               a handler would wait for itself
├── InvalidAnswer           an answer is not of the type that the called function declares
├── InvalidState            a state is not of the type that its namespace declares
├── Undecryptable           a stored value does not decrypt: changed, moved, or not of this key
│   └── KeyMissing              the keyring lacks the key of a stored value
├── NamespaceNotFound       no worker ever registered this namespace
├── NamespaceInUse          it is served, or has processes: it cannot be retired
├── ProcessNotFound         no such process, or it was removed
│   └── ScheduleNotFound        no such schedule, or it was removed
├── TaskNotFound            the process has no such task, or has no longer
├── HistoryTruncated        events of that range are deleted
├── FeedTruncated           the feed has not what comes behind this position
├── SubscriptionLost        another reader has the slice of a subscription
├── ArchiveUnavailable      the archive cannot be written or read
├── ArchiveDamaged          a part of the archive is not what its manifest says
├── TaskNotEnded            the task waits or runs: it can be redone once it has ended
├── TaskCancelled           the task is a timer that was replaced, unset or fired before it ran
├── ProcessAlreadyExists    start or put of an id that is taken
├── ProcessBroken           the process is in status error; repair it first
├── ProcessNotBroken        repair of a process that is not in status error
│   └── RepairConflict          it is in status error, and takes no repair just now
├── Rejected                the handler refused the request (the caller's side of Reject)
│   └── Expired                 it was not begun in the time that its caller gave it
├── HandlerFailed           the handler raised, or ran out of time
├── ReplyTimeout            no answer in time; the task goes on
├── BulkNotFound            no bulk of this number
├── StorageUnavailable      PostgreSQL cannot be reached, or the role lacks a privilege
│   └── RequestLost             a fail-over or a restore lost an accepted request
├── SchemaMismatch          this release cannot use the database
└── LifespanFailed          the lifespan of an app raised, so its engine does not serve

Rule: a caller decides by type and typed attributes, never by the text. An error about one process has its
`namespace` and `process_id`, and `detail`, a text or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from progressor.errors.base import ProgressorError as ProgressorError
from progressor.errors.of_handlers import (
    NonRetryable as NonRetryable,
    Reject as Reject,
    StepTransactionError as StepTransactionError,
)
from progressor.errors.of_keeping import (
    ArchiveDamaged as ArchiveDamaged,
    ArchiveUnavailable as ArchiveUnavailable,
    FeedTruncated as FeedTruncated,
    SubscriptionLost as SubscriptionLost,
)
from progressor.errors.of_processes import (
    AboutProcess as AboutProcess,
    ProcessNotFound as ProcessNotFound,
    ScheduleNotFound as ScheduleNotFound,
    process_not_found as process_not_found,
)
from progressor.errors.wordings import counted, in_use, process_text

__all__ = [
    "ArchiveDamaged", "ArchiveUnavailable", "BulkNotFound", "CallCycle", "Expired", "FeedTruncated",
    "HandlerFailed", "HistoryTruncated", "IdempotencyConflict", "InvalidAnswer", "InvalidRequest",
    "InvalidState", "KeyMissing", "LifespanFailed", "NamespaceInUse", "NamespaceNotFound",
    "NonRetryable", "ProcessAlreadyExists", "ProcessBroken", "ProcessNotBroken", "ProcessNotFound",
    "ProgressorError", "Reject", "Rejected", "RepairConflict", "ReplyTimeout", "RequestLost",
    "ScheduleNotFound", "SchemaMismatch", "StorageUnavailable", "SubscriptionLost", "TaskCancelled",
    "TaskNotEnded", "TaskNotFound", "Undecryptable",
]  # fmt: skip


# Names; the text of an error suggests no more than these.
_MOST_MEANT = 3


class InvalidRequest(ProgressorError, ValueError):
    """The request breaks a rule: the text names `field` (or None) and the rule; nothing was written."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidAnswer(ProgressorError, ValueError):
    """An answer is not of the type that the called function declares: another release of it answered.

    The step is done and saved. The same request by the function's name, and key, returns the plain value.
    """


class InvalidState(ProgressorError, ValueError):
    """A state is not of the type that its namespace declares: it was stored so, or a handler set it so."""


class Undecryptable(AboutProcess):
    """A stored value of a process does not decrypt in its place: changed, moved, or not encrypted.

    `kind` is `state`, `args`, `context`, `response` or `event`. A step that needs the value breaks its
    process; but args and contexts that `is_plain` only have their request refused.
    """

    _says = "a value of {process} cannot be decrypted"

    def __init__(
        self, namespace: str, process_id: str, kind: str, *, detail: str, is_plain: bool = False
    ) -> None:
        super().__init__(namespace, process_id, detail=f"{kind}: {detail}")
        self.kind = kind
        self.is_plain = is_plain


class KeyMissing(Undecryptable):
    """The keyring lacks the key `kid` of a stored value; with the key it reads it."""

    def __init__(self, namespace: str, process_id: str, kind: str, *, kid: str) -> None:
        super().__init__(namespace, process_id, kind, detail=f"the keyring has no key {kid!r}")
        self.kid = kid


class IdempotencyConflict(InvalidRequest):
    """The idempotency key was used before on this process, with another request.

    `process_id` is None if it was to be that of a bulk, and another bulk has it.
    """

    def __init__(self, namespace: str, process_id: str | None, idempotency_key: str) -> None:
        used = "for another bulk: use a new key for a new bulk"
        if process_id is not None:
            where = process_text(namespace, process_id)
            used = f"on {where} for another request: use a new key for a new request"
        super().__init__(
            f"idempotency key {idempotency_key!r} was already used {used}",
            field="idempotency_key",
        )
        self.namespace = namespace
        self.process_id = process_id
        self.idempotency_key = idempotency_key


class CallCycle(InvalidRequest):
    """A handler asked its own process, or one that waits for it; `processes` is the cycle, closed.

    Nothing was sent. If the handler does not catch it, its request is refused and its process stays as it
    was; a timer's step fails.
    """

    def __init__(self, processes: Sequence[str]) -> None:
        super().__init__(
            f"the handler would wait for itself ({' → '.join(processes)}): "
            "use notify, which waits for no answer, or ask from outside of handlers",
            field="process_id",
        )
        self.processes = tuple(processes)


class NamespaceNotFound(ProgressorError):
    """No worker ever registered this namespace in this database; `similar` are known names like it."""

    def __init__(self, namespace: str, similar: tuple[str, ...] = ()) -> None:
        meant = f" (did you mean {' or '.join(map(repr, similar[:_MOST_MEANT]))}?)" if similar else ""
        super().__init__(
            f"namespace {namespace!r} is not known in this database{meant}: "
            "start a worker (or an Engine) that serves it once"
        )
        self.namespace = namespace
        self.similar = similar


class NamespaceInUse(ProgressorError):
    """The namespace cannot be retired: `workers` serve it, or `processes` (counted up to 1,001) are left.

    With 0 of both, the lease of a worker that registered it a moment ago has not ended.
    """

    def __init__(self, namespace: str, *, workers: int, processes: int) -> None:
        super().__init__(f"namespace {namespace!r} cannot be retired: {in_use(workers, processes)}")
        self.namespace = namespace
        self.workers = workers
        self.processes = processes


class _AboutTask(AboutProcess):
    def __init__(self, namespace: str, process_id: str, *, task_id: int, detail: str | None = None) -> None:
        super().__init__(namespace, process_id, detail=detail or f"task {task_id}")
        self.task_id = task_id


class TaskNotFound(_AboutTask):
    """The process has no task `task_id` in its present life.

    `is_deleted`: it may have had one, which the retention of its namespace has deleted since. No row tells
    such a task from an old one of another process.
    """

    _says = "{process} has no such task"

    def __init__(self, namespace: str, process_id: str, *, task_id: int, is_deleted: bool = False) -> None:
        why = f"task {task_id} was deleted by the retention of its namespace, or never was of this process"
        super().__init__(namespace, process_id, task_id=task_id, detail=why if is_deleted else None)
        self.is_deleted = is_deleted


class TaskCancelled(_AboutTask):
    """The task is a timer that never ran: it was replaced, unset or fired, as `detail` states."""

    _says = "a timer of {process} was cancelled"


class TaskNotEnded(_AboutTask):
    """The task `task_id` waits or runs: only a request that has ended is run again."""

    _says = "a request of {process} has not ended"


class HistoryTruncated(AboutProcess):
    """The range begins below `first_event_id`, the first event that the retention has left."""

    _says = "events of {process} are deleted"

    def __init__(self, namespace: str, process_id: str, *, first_event_id: int) -> None:
        super().__init__(namespace, process_id, detail=f"the first that is left is event {first_event_id}")
        self.first_event_id = first_event_id


class ProcessAlreadyExists(AboutProcess):
    """The id is taken in this namespace."""

    _says = "{process} exists already"


class ProcessBroken(AboutProcess):
    """The process is in status error; `detail` is the reason. Repair it, then call again."""

    _says = "{process} is broken"


class ProcessNotBroken(AboutProcess):
    """The process is not in status error, and only such a process can be repaired."""

    _says = "{process} is not broken"


class RepairConflict(ProcessNotBroken):
    """The process is broken and takes no repair just now; `detail` is the reason. Ask again in a moment.

    Another repair runs or waits, or requests that waited when it broke are still being cancelled: very many
    of them take a while.
    """

    _says = "{process} takes no repair now"


class Rejected(AboutProcess):
    """The handler refused the request with `Reject(reason, **details)`.

    The process is as it was; one that `start` was to make does not exist.
    """

    _says = "{process} refused the request"

    def __init__(
        self, namespace: str, process_id: str, *, reason: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(namespace, process_id, detail=reason)
        self.reason = reason
        self.details = details or {}


class Expired(Rejected):
    """The request was not begun in the time of its `expires`: no handler ran, the process is as it was."""

    _says = "{process} did not begin the request in time"


class HandlerFailed(AboutProcess):
    """The handler raised, outlived its step_timeout, or lost its worker; `error` is the reason."""

    _says = "the handler of {process} failed"

    def __init__(self, namespace: str, process_id: str, *, error: str) -> None:
        super().__init__(namespace, process_id, detail=error)
        self.error = error


class ReplyTimeout(ProgressorError):
    """The reply did not come in time. The task goes on: ask again with the same `idempotency_key`.

    When the time was over: `paused`: an operator has paused the namespace; `served`: a live worker serves
    it; `requests_before`: how many requests wait before this one on its process, counted up to 1,001.
    """

    def __init__(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None,
        task_id: int | None,
        paused: bool = False,
        served: bool = True,
        requests_before: int = 0,
    ) -> None:
        why = "" if served else f"; no live worker serves namespace {namespace!r}"
        if paused:
            why += f"; namespace {namespace!r} is paused until an operator resumes it"
        if requests_before:
            why += f"; requests that wait before it: {counted(requests_before)}"
        # A caller that waited for a request of somebody else has no key.
        key = "" if idempotency_key is None else f" with idempotency_key={idempotency_key!r}"
        super().__init__(
            f"no reply from {process_text(namespace, process_id)} in time; the task goes on: "
            f"ask again{key}{why}"
        )
        self.namespace = namespace
        self.process_id = process_id
        self.idempotency_key = idempotency_key
        self.task_id = task_id
        self.paused = paused
        self.served = served
        self.requests_before = requests_before


class BulkNotFound(ProgressorError):
    """No bulk of this number was ever made in this database."""

    def __init__(self, bulk_id: int) -> None:
        super().__init__(f"there is no bulk {bulk_id}")
        self.bulk_id = bulk_id


class StorageUnavailable(ProgressorError):
    """PostgreSQL cannot be reached, or the role lacks a privilege: the text names which.

    With the same idempotency key the request is safe to repeat. `is_denied`: PostgreSQL refuses it until
    somebody grants the role what the text names.
    """

    is_denied = False


class RequestLost(StorageUnavailable):
    """An accepted request is not in this database: ask again with the same `idempotency_key`.

    A fail-over to a standby that lagged, or a restore, lost it; its handler may have run before.
    `is_certain` is False if nothing is known of its process, which may have been removed over a day ago.
    """

    def __init__(
        self,
        namespace: str,
        process_id: str,
        *,
        idempotency_key: str | None,
        task_id: int,
        is_certain: bool = True,
    ) -> None:
        why = "a fail-over or a restore lost it"
        if not is_certain:
            why += ", or its process was removed over a day ago"
        key = "the same key" if idempotency_key is None else f"idempotency_key={idempotency_key!r}"
        super().__init__(
            f"task {task_id} of {process_text(namespace, process_id)} was accepted, and is not in this "
            f"database: {why}; ask again with {key}"
        )
        self.namespace = namespace
        self.process_id = process_id
        self.idempotency_key = idempotency_key
        self.task_id = task_id
        self.is_certain = is_certain


class SchemaMismatch(ProgressorError):
    """This release cannot use the database: it does not exist, its tables are older or newer, its encoding
    is not UTF8, or PostgreSQL is too old.
    """


class LifespanFailed(ProgressorError):
    """The lifespan of an app raised, on entering or on leaving: the text names both, and the cause."""
