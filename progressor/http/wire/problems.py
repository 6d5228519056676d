"""Problems (RFC 9457): one table of their kinds for errors, docs and OpenAPI.

Rule: a problem's type names a class of errors, and its members are the attributes of that class, so that a
client can raise the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from progressor.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    BulkNotFound,
    CallCycle,
    Expired,
    FeedTruncated,
    HandlerFailed,
    HistoryTruncated,
    IdempotencyConflict,
    InvalidRequest,
    InvalidState,
    KeyMissing,
    NamespaceInUse,
    NamespaceNotFound,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProcessNotFound,
    ProgressorError,
    Rejected,
    RepairConflict,
    ReplyTimeout,
    RequestLost,
    ScheduleNotFound,
    SchemaMismatch,
    StorageUnavailable,
    SubscriptionLost,
    TaskCancelled,
    TaskNotEnded,
    TaskNotFound,
    Undecryptable,
)

MEDIA_TYPE = "application/problem+json"
# Stable, because clients tell problems apart by it. A URN names, and need not lead to a page.
TYPES = "urn:progressor:problem:"
RETRY_AFTER_SECONDS = 1


class Kind(NamedTuple):
    """One kind of problem: its type, its HTTP status, and its title."""

    name: str
    status: HTTPStatus
    title: str

    @property
    def type(self) -> str:
        """Return the URI by which clients know this kind."""
        return TYPES + self.name


# An error has the kind of its own class, or of the nearest one above it.
TABLE: Mapping[type[ProgressorError], Kind] = {
    ProgressorError: Kind("error", HTTPStatus.INTERNAL_SERVER_ERROR, "The request failed"),
    InvalidRequest: Kind("invalid-request", HTTPStatus.BAD_REQUEST, "The request breaks a rule"),
    IdempotencyConflict: Kind(
        "idempotency-conflict",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The idempotency key was used for another request",
    ),
    CallCycle: Kind("call-cycle", HTTPStatus.CONFLICT, "A handler would wait for itself"),
    InvalidState: Kind(
        "invalid-state",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "The state is not of the type that its namespace declares",
    ),
    Undecryptable: Kind(
        "undecryptable",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "A stored value cannot be decrypted in its place",
    ),
    KeyMissing: Kind(
        "key-missing",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "The API lacks the key of a stored value",
    ),
    NamespaceNotFound: Kind(
        "namespace-not-found", HTTPStatus.NOT_FOUND, "No worker ever served this namespace"
    ),
    NamespaceInUse: Kind(
        "namespace-in-use", HTTPStatus.CONFLICT, "The namespace is served, or has processes"
    ),
    ProcessNotFound: Kind("process-not-found", HTTPStatus.NOT_FOUND, "There is no such process"),
    ScheduleNotFound: Kind("schedule-not-found", HTTPStatus.NOT_FOUND, "There is no such schedule"),
    TaskNotFound: Kind("task-not-found", HTTPStatus.NOT_FOUND, "The process has no such task"),
    HistoryTruncated: Kind(
        "history-truncated", HTTPStatus.GONE, "The retention has deleted events of this range"
    ),
    FeedTruncated: Kind(
        "feed-truncated", HTTPStatus.GONE, "The feed has not what comes behind this position"
    ),
    SubscriptionLost: Kind(
        "subscription-lost", HTTPStatus.CONFLICT, "Another reader has the slice of the subscription"
    ),
    ArchiveUnavailable: Kind(
        "archive-unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "The archive cannot be read just now"
    ),
    ArchiveDamaged: Kind(
        "archive-damaged", HTTPStatus.INTERNAL_SERVER_ERROR, "A part of the archive is damaged"
    ),
    TaskCancelled: Kind("task-cancelled", HTTPStatus.CONFLICT, "The timer was cancelled before it ran"),
    TaskNotEnded: Kind("task-not-ended", HTTPStatus.CONFLICT, "The task waits or runs"),
    BulkNotFound: Kind("bulk-not-found", HTTPStatus.NOT_FOUND, "There is no such bulk"),
    ProcessAlreadyExists: Kind("process-already-exists", HTTPStatus.CONFLICT, "The id is taken"),
    ProcessBroken: Kind("process-broken", HTTPStatus.CONFLICT, "The process is broken"),
    ProcessNotBroken: Kind("process-not-broken", HTTPStatus.CONFLICT, "The process is not broken"),
    RepairConflict: Kind(
        "repair-conflict", HTTPStatus.CONFLICT, "The process takes no repair now: ask again"
    ),
    Rejected: Kind("rejected", HTTPStatus.UNPROCESSABLE_ENTITY, "The handler refused the request"),
    Expired: Kind("expired", HTTPStatus.UNPROCESSABLE_ENTITY, "The request was not begun in time"),
    HandlerFailed: Kind("handler-failed", HTTPStatus.INTERNAL_SERVER_ERROR, "The handler failed"),
    ReplyTimeout: Kind(
        "reply-timeout", HTTPStatus.SERVICE_UNAVAILABLE, "No answer in time; the task goes on"
    ),
    StorageUnavailable: Kind(
        "storage-unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "PostgreSQL is not available"
    ),
    RequestLost: Kind(
        "request-lost",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "A fail-over or a restore lost the request: ask again with the same key",
    ),
    SchemaMismatch: Kind(
        "schema-mismatch",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The database is none that this release can use",
    ),
}
# Kinds without an error of the engine: they concern HTTP alone.
INVALID_ARGS = Kind(
    "invalid-args", HTTPStatus.UNPROCESSABLE_ENTITY, "The arguments are not what the namespace takes"
)
UNAUTHORIZED = Kind("unauthorized", HTTPStatus.UNAUTHORIZED, "Say who you are")
FORBIDDEN = Kind("forbidden", HTTPStatus.FORBIDDEN, "You may not do this")
NO_ROUTE = Kind("no-route", HTTPStatus.NOT_FOUND, "There is nothing at this path")
NO_METHOD = Kind("no-method", HTTPStatus.METHOD_NOT_ALLOWED, "This path has not this method")
NOT_ACCEPTABLE = Kind(
    "not-acceptable", HTTPStatus.NOT_ACCEPTABLE, "The answer has none of the media types that you accept"
)
PRECONDITION_FAILED = Kind(
    "precondition-failed", HTTPStatus.PRECONDITION_FAILED, "A precondition of the request does not hold"
)
PRECONDITION_NOT_SUPPORTED = Kind(
    "precondition-not-supported",
    HTTPStatus.PRECONDITION_FAILED,
    "This precondition is not supported here",
)
TOO_SLOW = Kind("too-slow", HTTPStatus.REQUEST_TIMEOUT, "The request did not come in time")
MALFORMED = Kind("malformed", HTTPStatus.BAD_REQUEST, "This is not HTTP")
HEAD_TOO_LARGE = Kind(
    "head-too-large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "URL and header fields are too large"
)
TOO_LARGE = Kind("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
WRONG_MEDIA_TYPE = Kind(
    "wrong-media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is not of a type that is read here"
)
TOO_MANY_REQUESTS = Kind("too-many-requests", HTTPStatus.TOO_MANY_REQUESTS, "Ask less often")
UNVERIFIED = Kind("unverified", HTTPStatus.SERVICE_UNAVAILABLE, "Who you are cannot be verified just now")
OVERLOADED = Kind("overloaded", HTTPStatus.SERVICE_UNAVAILABLE, "Too much is under way here")
DEFECT = Kind("defect", HTTPStatus.INTERNAL_SERVER_ERROR, "A defect of the API; its log says more")

OF_HTTP = (
    INVALID_ARGS,
    UNAUTHORIZED,
    FORBIDDEN,
    NO_ROUTE,
    NO_METHOD,
    NOT_ACCEPTABLE,
    PRECONDITION_FAILED,
    PRECONDITION_NOT_SUPPORTED,
    MALFORMED,
    HEAD_TOO_LARGE,
    TOO_SLOW,
    TOO_LARGE,
    WRONG_MEDIA_TYPE,
    TOO_MANY_REQUESTS,
    UNVERIFIED,
    OVERLOADED,
    DEFECT,
)


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
