"""Models of the documents that the API answers with, made of the nouns that the engine has.

Rule: the fields of a document stand in one place, here or in its noun. The answer, its schema, and what
`progressor … --json` prints of processes and tasks are made of it; HttpClient makes the noun of it again.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from inspect import cleandoc
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from progressor.acts import AuditEntry
from progressor.bulks import BrokenGroup, Bulk, BulkPreview
from progressor.calendars import Rule, json_of
from progressor.client.failure_groups import FailureGroup
from progressor.client.results import FeedEvent, ProcessChange, Published, Removal, TraceEntry
from progressor.handlers.process import Process
from progressor.handlers.state.shape import ANY
from progressor.http.wire.members import IN_BASE64, members_for
from progressor.model import Event, ProcessStatus, Timer
from progressor.monitoring import (
    KnownGroup,
    KnownNamespace,
    KnownRetention,
    KnownWorker,
    Mailbox,
    NamespaceStatus,
    RetentionEstimate,
    Waiting,
    WaitingRequests,
)

Bytes = Annotated[str | None, Field(default=None, json_schema_extra={"contentEncoding": "base64"})]
"""Bytes in base64, beside a member that is null then."""


class Body(BaseModel):
    """A model of a document. It is built when it is used, which few commands do."""

    model_config = ConfigDict(defer_build=True, ser_json_timedelta="float")


_BODIES: dict[Any, type[Body]] = {}
"""The models of the nouns."""


def body_of(noun: type, name: str, text: str = "", **properties: str) -> Any:
    """Return the model of a noun: its fields, and behind the field that names it a property of the noun.

    Its description is the noun's docstring, with a further `text`.
    """
    fields: dict[str, Any] = {}
    for field, hint in get_type_hints(noun).items():
        fields[field] = _in_json(hint), ...
        if hint is Any:
            fields[field + IN_BASE64] = Bytes, None
        if field in properties:
            shown = properties[field]
            fields[shown] = get_type_hints(getattr(noun, shown).fget)["return"], ...
    about = "\n\n".join(filter(None, (cleandoc(noun.__doc__ or "").replace("None", "null"), text)))
    _BODIES[noun] = create_model(name, __base__=Body, __doc__=about, **fields)
    return _BODIES[noun]


def _in_json(hint: Any) -> Any:
    """Return a type with the models of nouns in place of the nouns."""
    if get_origin(hint) is tuple:
        return list[_in_json(get_args(hint)[0])]  # type: ignore[misc] # a type that is made
    if hint == timedelta | Rule | None:
        return Annotated[dict[str, Any] | None, Field(description="Its rule, as a request states it.")]
    if hint in (timedelta, timedelta | None):
        return Annotated[hint, Field(description="Seconds.")]
    return _BODIES.get(hint, hint)


def listed(member: str, body: Any, name: str, text: str) -> Any:
    """Return the model of an object with a list of such bodies as its one member."""
    fields: dict[str, Any] = {member: (list[body], ...)}
    return create_model(name, __base__=Body, __doc__=text, **fields)


TimerBody = body_of(
    Timer, "TimerBody", "`next` is the nominal time after it, null if nobody can know it.", nominal="next"
)


class EventBody(Body):
    """One entry of a process's history."""

    event_id: int
    name: str | None
    timestamp: datetime | None
    task_id: int | None
    metadata: dict[str, Any]
    payload: Any
    payload_base64: Bytes


_BODIES[Event] = EventBody


class ProcessBody(Body):
    """A process. Without the scope `errors:read` its `detail` is null."""

    namespace: str
    process_id: str
    status: ProcessStatus
    previous_status: ProcessStatus | None
    status_changed_at: datetime
    created_at: datetime
    detail: str | None
    corrupted_by: int | None
    timer: TimerBody | None  # type: ignore[valid-type] # made of the noun
    timers: list[TimerBody] = Field(  # type: ignore[valid-type] # made of the noun
        description="All its timers, earliest first; the one without a name is `timer`, too."
    )
    first_event_id: int = Field(default=1, description="The first that the retention has left.")
    last_event_id: int
    metadata: dict[str, Any]
    state: Any = Field(default=None, description="Present only if it is asked for.")
    state_base64: Bytes
    history: list[EventBody] | None = Field(default=None, description="Present only if it is asked for.")


ChangeBody = body_of(ProcessChange, "ChangeBody", "Without the scope `errors:read` its `detail` is null.")
FeedEventBody = body_of(FeedEvent, "FeedEventBody")
TaskBody = body_of(TraceEntry, "TaskBody", "Without the scope `errors:read` its `error` is null.")


class FeedBody(Body):
    """A page of the feed; `position` asks for what comes behind it. `has_more`: there is more now."""

    events: list[FeedEventBody]  # type: ignore[valid-type] # made of the noun
    position: str
    has_more: bool


class EventsBody(Body):
    """A range of a history; `after` asks for the events behind it, null at the end."""

    events: list[EventBody]
    after: int | None


class TraceBody(Body):
    """Tasks in their order; `after` asks for the tasks behind them, null at the end.

    A page may have fewer tasks than were asked for, because they are large. If the `last` ones were asked
    for, `before` asks for those of them that are missing, null if all are there.
    """

    tasks: list[TaskBody]  # type: ignore[valid-type] # made of the noun
    after: int | None
    before: int | None


class PageBody(Body):
    """A page of processes; `cursor` asks for the next one, null at the end."""

    processes: list[ProcessBody]
    cursor: str | None


class AcceptedBody(Body):
    """A request that was accepted, and has no answer yet: ask its task for it."""

    namespace: str
    process_id: str
    task_id: int
    fingerprint: str | None = Field(description="Tells this task from another one with its number.")
    idempotency_key: str | None
    paused: bool = Field(description="True if its namespace is paused: the task waits for an operator.")
    served: bool | None = Field(
        description="True if a live worker serves its namespace; null if not looked up."
    )
    requests_before: int | None = Field(
        description="Requests that wait before it, counted up to 1,001; null if not looked up."
    )


class ErrorBody(Body):
    """A JSON pointer to a value that breaks a rule, and the rule."""

    pointer: str
    rule: str


class ProblemBody(Body, extra="allow"):
    """A problem document (RFC 9457); further members are those of its type."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ErrorBody] = []


NamespaceBody = body_of(Published, "NamespaceBody")
NamespacesBody = listed(
    "namespaces",
    body_of(KnownNamespace, "KnownNamespaceBody"),
    "NamespacesBody",
    "All namespaces, by name.",
)
KnownWorkerBody = body_of(KnownWorker, "KnownWorkerBody", lease_age="is_live")
WorkersBody = listed(
    "workers", KnownWorkerBody, "WorkersBody", "All workers and zombie collectors, by host."
)
GroupsBody = listed(
    "groups",
    body_of(KnownGroup, "KnownGroupBody", "A count of 1,001 stands for more than 1,000."),
    "GroupsBody",
    "Groups of a namespace, by name.",
)
KnownRetentionBody = body_of(KnownRetention, "KnownRetentionBody", next_at="is_walking")
RetentionEstimateBody = body_of(RetentionEstimate, "RetentionEstimateBody")
WaitingBody = body_of(Waiting, "WaitingBody")
MailboxBody = body_of(Mailbox, "MailboxBody")
WaitingRequestsBody = body_of(WaitingRequests, "WaitingRequestsBody")
StatusBody = listed(
    "namespaces",
    body_of(NamespaceStatus, "NamespaceStatusBody", "A count of 1,001 stands for more than 1,000."),
    "StatusBody",
    "The namespaces, by name.",
)
FailuresBody = listed(
    "groups", body_of(FailureGroup, "FailureGroupBody"), "FailuresBody", "The groups, the largest first."
)
BulkBody = body_of(Bulk, "BulkBody", begun="under_way")
BulksBody = listed("bulks", BulkBody, "BulksBody", "The newest bulks, without what is left of them.")
GroupBody = body_of(
    BrokenGroup,
    "GroupBody",
    "Without `errors:read` they are those of one handler, with an empty message; without `processes:read`\n"
    "there are no examples.",
)
PreviewBody = body_of(BulkPreview, "PreviewBody")
AuditEntryBody = body_of(AuditEntry, "AuditEntryBody")
RemovalBody = body_of(Removal, "RemovalBody")


class ImportedBody(Body):
    """The outcome of an import: of each process whether it is written, or was there already."""

    outcomes: list[Literal["imported", "taken"]]


class RemovalsBody(Body):
    """The receipts of a page of removals; `cursor` goes on behind it, null at the end."""

    removals: list[RemovalBody]  # type: ignore[valid-type] # a model that is made
    cursor: str | None


class AuditBody(Body):
    """A page of the audit, newest first."""

    entries: list[AuditEntryBody]  # type: ignore[valid-type] # a model that is made
    cursor: str | None


def plain(value: Any) -> Any:
    """Return a noun as its body has it: a dict of its fields and properties; other values as JSON has them.

    Bytes stand in base64, durations in seconds.
    """
    if (body := _BODIES.get(type(value))) is not None:
        return _document(body, value)
    match value:
        case timedelta():
            return value.total_seconds()
        case tuple():
            return [plain(each) for each in value]
        case _:
            return value


def _document(body: type[Body], noun: object, *, without: Collection[str] = ()) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name in body.model_fields:
        if name not in without and not name.endswith(IN_BASE64):
            facts |= members_for(name, plain(getattr(noun, name)))
    if isinstance(noun, Timer) and noun.every is not None:
        # A plain period, too, is an object: that of a rule.
        facts["every"] = json_of(noun.every)
    return facts


def process_document(
    process: Process[Any], *, state: bool = True, history: bool = True, failures: bool = True
) -> dict[str, Any]:
    """Return a process as ProcessBody has it."""
    facts = _document(ProcessBody, process, without=("state", "history", "timers"))
    facts["timers"] = plain(tuple(process.timers.values()))
    if not failures:
        facts["detail"] = None
    if state:
        facts |= members_for("state", state_of(process))
    if history:
        facts["history"] = plain(tuple(process.history))
    return facts


def state_of(process: Process[Any]) -> Any:
    """Return the state as JSON has it, whatever its type; its bytes if it is none, or of a raw handler."""
    try:
        return process.read_as(ANY).state
    except ValueError:
        return process.aux_state
