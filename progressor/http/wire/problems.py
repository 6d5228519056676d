"""Problems (RFC 9457): one table of their kinds for errors, docs and OpenAPI.

Rule: a problem's type names a class of errors, and its members are the attributes of that class, so that a
client can raise the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from progressor import errors
from progressor.errors import InvalidRequest, ProgressorError

MEDIA_TYPE = "application/problem+json"
# Stable, because clients tell problems apart by it. A URN names, and need not lead to a page.
TYPES = "urn:progressor:problem:"
RETRY_AFTER_SECONDS = 1


class Kind(NamedTuple):
    """One kind of problem: its type, its HTTP status, and its title."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """Return the URI by which clients know this kind."""
        return TYPES + self.name


# An error has the kind of its own class, or of the nearest one above it.
TABLE: Mapping[type[ProgressorError], Kind] = {
    ProgressorError: Kind("error", 500, "The request failed"),
    InvalidRequest: Kind("invalid-request", 400, "The request breaks a rule"),
    errors.IdempotencyConflict: Kind(
        "idempotency-conflict", 422, "The idempotency key was used for another request"
    ),
    errors.CallCycle: Kind("call-cycle", 409, "A handler would wait for itself"),
    errors.InvalidState: Kind(
        "invalid-state", 500, "The state is not of the type that its namespace declares"
    ),
    errors.Undecryptable: Kind("undecryptable", 500, "A stored value cannot be decrypted in its place"),
    errors.KeyMissing: Kind("key-missing", 500, "The API lacks the key of a stored value"),
    errors.NamespaceNotFound: Kind("namespace-not-found", 404, "No worker ever served this namespace"),
    errors.NamespaceInUse: Kind("namespace-in-use", 409, "The namespace is served, or has processes"),
    errors.ProcessNotFound: Kind("process-not-found", 404, "There is no such process"),
    errors.ScheduleNotFound: Kind("schedule-not-found", 404, "There is no such schedule"),
    errors.TaskNotFound: Kind("task-not-found", 404, "The process has no such task"),
    errors.HistoryTruncated: Kind(
        "history-truncated", 410, "The retention has deleted events of this range"
    ),
    errors.FeedTruncated: Kind("feed-truncated", 410, "The feed has not what comes behind this position"),
    errors.SubscriptionLost: Kind(
        "subscription-lost", 409, "Another reader has the slice of the subscription"
    ),
    errors.ArchiveUnavailable: Kind("archive-unavailable", 503, "The archive cannot be read just now"),
    errors.ArchiveDamaged: Kind("archive-damaged", 500, "A part of the archive is damaged"),
    errors.TaskCancelled: Kind("task-cancelled", 409, "The timer was cancelled before it ran"),
    errors.TaskNotEnded: Kind("task-not-ended", 409, "The task waits or runs"),
    errors.BulkNotFound: Kind("bulk-not-found", 404, "There is no such bulk"),
    errors.ProcessAlreadyExists: Kind("process-already-exists", 409, "The id is taken"),
    errors.ProcessBroken: Kind("process-broken", 409, "The process is broken"),
    errors.ProcessNotBroken: Kind("process-not-broken", 409, "The process is not broken"),
    errors.RepairConflict: Kind("repair-conflict", 409, "The process takes no repair now: ask again"),
    errors.Rejected: Kind("rejected", 422, "The handler refused the request"),
    errors.Expired: Kind("expired", 422, "The request was not begun in time"),
    errors.HandlerFailed: Kind("handler-failed", 500, "The handler failed"),
    errors.ReplyTimeout: Kind("reply-timeout", 503, "No answer in time; the task goes on"),
    errors.StorageUnavailable: Kind("storage-unavailable", 503, "PostgreSQL is not available"),
    errors.RequestLost: Kind(
        "request-lost", 503, "A fail-over or a restore lost the request: ask again with the same key"
    ),
    errors.SchemaMismatch: Kind("schema-mismatch", 503, "The database is none that this release can use"),
}
# Kinds without an error of the engine: they concern HTTP alone.
INVALID_ARGS = Kind("invalid-args", 422, "The arguments are not what the namespace takes")
UNAUTHORIZED = Kind("unauthorized", 401, "Say who you are")
FORBIDDEN = Kind("forbidden", 403, "You may not do this")
NO_ROUTE = Kind("no-route", 404, "There is nothing at this path")
NO_METHOD = Kind("no-method", 405, "This path has not this method")
NOT_ACCEPTABLE = Kind("not-acceptable", 406, "The answer has none of the media types that you accept")
PRECONDITION_FAILED = Kind("precondition-failed", 412, "A precondition of the request does not hold")
PRECONDITION_NOT_SUPPORTED = Kind(
    "precondition-not-supported", 412, "This precondition is not supported here"
)
MALFORMED = Kind("malformed", 400, "This is not HTTP")
HEAD_TOO_LARGE = Kind("head-too-large", 431, "URL and header fields are too large")
TOO_SLOW = Kind("too-slow", 408, "The request did not come in time")
TOO_LARGE = Kind("too-large", 413, "The body is too large")
WRONG_MEDIA_TYPE = Kind("wrong-media-type", 415, "The body is not of a type that is read here")
TOO_MANY_REQUESTS = Kind("too-many-requests", 429, "Ask less often")
UNVERIFIED = Kind("unverified", 503, "Who you are cannot be verified just now")
OVERLOADED = Kind("overloaded", 503, "Too much is under way here")
DEFECT = Kind("defect", 500, "A defect of the API; its log says more")


def kind_of(error: ProgressorError) -> Kind:
    """Return the kind of an error: that of its class, or of the nearest one above it."""
    if isinstance(error, InvalidRequest) and type(error) is InvalidRequest and _is_of_args(error.field):
        return INVALID_ARGS
    return next(TABLE[each] for each in type(error).__mro__ if each in TABLE)


def _is_of_args(field: str | None) -> bool:
    return field is not None and (field == "args" or field.startswith("args."))


def members_of(error: ProgressorError) -> dict[str, Any]:
    """Return the attributes of an error; `detail` as `cause`, for a problem's `detail` is its text."""
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    if "detail" in facts:
        facts["cause"] = facts.pop("detail")
    return facts
