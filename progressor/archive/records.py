"""Records: the lines of an export and of an archive, each a row of one process in JSON.

Rule: a record names its process, so that any lines of a file can be read without the others. A whole
process is its own record, then its tasks, its events and its messages in their orders, then its end, which
counts them: what has no end was cut off. An export that has a head is whole if it ends with a tail. An
import draws new numbers for tasks, in the order of the old.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json, to_json

from progressor.errors import InvalidRequest
from progressor.inputs import LAST_ID, check_namespace, check_text
from progressor.model import Metadata, ProcessStatus, TaskStatus, TaskType

FORMAT = 1
"""The version of this format. A later release reads what an earlier one wrote."""

_BASE64 = "base64"
_MOST_FAULTS = 3


def _shown(data: bytes) -> Any:
    """Return stored bytes as JSON that gives exactly these bytes again, or else as base64."""
    try:
        value = from_json(data, allow_inf_nan=False)
        is_exact = value is not None and to_json(value) == data
    except ValueError:
        is_exact = False
    if is_exact and not (isinstance(value, dict) and value.keys() == {_BASE64}):
        return value
    return {_BASE64: b64encode(data).decode()}


def _stored(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        if not isinstance(value[_BASE64], str):
            raise ValueError("base64 must be a text")
        return b64decode(value[_BASE64], validate=True)
    return to_json(value)


Value = Annotated[bytes, PlainSerializer(_shown), PlainValidator(_stored)]
"""A stored value: as it is if it is JSON, else `{"base64": …}`."""

T = TypeVar("T")


def _bytes_of(given: Any) -> bytes:
    return given if isinstance(given, bytes) else bytes.fromhex(given)


def _storable(given: T) -> T:
    # A text may speak of \\u0000: there its backslash is written twice.
    if b"\\u0000" in to_json(given).replace(rb"\\", b""):
        raise ValueError("must not contain NUL characters")
    return given


Hash = Annotated[bytes, PlainSerializer(bytes.hex), PlainValidator(_bytes_of)]
Number = Annotated[int, Field(ge=0, le=LAST_ID)]
TaskNumber = Annotated[int, Field(ge=-LAST_ID, le=LAST_ID)]
"""The number of a task; not above 0 for one that was deleted before its process was imported."""
Words = Annotated[str, AfterValidator(_storable)]
Facts = Annotated[Metadata, AfterValidator(_storable)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: str
    namespace: Annotated[str, PlainValidator(check_namespace)]
    process_id: Annotated[str, PlainValidator(lambda given: check_text("process_id", given))]


class ProcessRecord(_Record):
    """A process without its tasks and events. `group` is the key of its group."""

    kind: Literal["process"] = "process"
    created_at: AwareDatetime
    status: ProcessStatus
    previous_status: ProcessStatus | None = None
    status_changed_at: AwareDatetime
    detail: Words | None = None
    corrupted_by: Number | None = None
    metadata: Facts = {}
    state: Value | None = None
    last_event_id: Number = 0
    first_event_id: Number | None = None
    swept_until: Number | None = None
    rests_until: AwareDatetime | None = None
    group: Words | None = None


class TaskRecord(_Record):
    """A task, or a timer, with its answer. `born`, in an archive: when its process was made."""

    kind: Literal["task"] = "task"
    born: AwareDatetime | None = None
    task_id: Number
    task_type: TaskType
    status: Literal[
        TaskStatus.WAITING, TaskStatus.RUNNING, TaskStatus.FINISHED, TaskStatus.ERROR, TaskStatus.CANCELLED
    ]
    name: Words | None = None
    args: Value | None = None
    context: Value | None = None
    response: Value | None = None
    error: Words | None = None
    idempotency_key: Words | None = None
    request_hash: Hash | None = None
    scheduled_time: AwareDatetime
    running_time: AwareDatetime | None = None
    finished_time: AwareDatetime | None = None
    attempts_count: Number | None = None
    zombie_count: Number | None = None
    last_retry_interval: timedelta | None = None
    worker_id: int | None = None
    expires_at: AwareDatetime | None = None
    priority: int | None = None
    trace: Words | None = None
    order_time: AwareDatetime | None = None

    @property
    def waits(self) -> bool:
        """True if it is still to be done, by whoever imports it too."""
        return self.status in {TaskStatus.WAITING, TaskStatus.RUNNING}


class EventRecord(_Record):
    """An event of a history. `born`, in an archive: when its process was made."""

    kind: Literal["event"] = "event"
    born: AwareDatetime | None = None
    event_id: Number
    task_id: TaskNumber
    timestamp: AwareDatetime
    metadata: Facts = {}
    payload: Value


class MessageRecord(_Record):
    """A message of a step to another process that is not delivered yet."""

    kind: Literal["message"] = "message"
    task_id: Number
    n: int
    created_at: AwareDatetime
    due: AwareDatetime
    attempts: int
    task_type: TaskType
    to_namespace: Words
    to_process_id: Words
    name: Words | None = None
    idempotency_key: Words
    request_hash: Hash
    metadata: Facts = {}
    args: Value | None = None
    trace: Words | None = None


class EndRecord(_Record):
    """The end of a whole process: how many records it has of each kind."""

    kind: Literal["end"] = "end"
    tasks: Number
    events: Number
    messages: Number


class HeadRecord(BaseModel):
    """The head of a file: by which release it was made, when, and what was asked for, for an export."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["head"] = "head"
    format: int
    release: str
    made_at: AwareDatetime
    asked: Metadata | None = None


class PlaceRecord(BaseModel):
    """A place in an export from which it can go on: all before it is whole."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: Literal["place"] = "place"
    cursor: Words


class TailRecord(BaseModel):
    """The tail of an export, behind its last process: it is finished, and has so many."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["tail"] = "tail"
    processes: Number


OfProcess = ProcessRecord | TaskRecord | EventRecord | MessageRecord | EndRecord
Record = OfProcess | HeadRecord | PlaceRecord | TailRecord
_RECORD: TypeAdapter[Record] = TypeAdapter(
    Annotated[Record, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)


class WholeProcess(NamedTuple):
    """A process with all that belongs to it."""

    process: ProcessRecord
    tasks: list[TaskRecord]
    events: list[EventRecord]
    messages: list[MessageRecord]

    @property
    def end(self) -> EndRecord:
        """The record that ends it."""
        return EndRecord(
            namespace=self.process.namespace,
            process_id=self.process.process_id,
            tasks=len(self.tasks),
            events=len(self.events),
            messages=len(self.messages),
        )

    def records(self) -> Iterable[OfProcess]:
        """Yield its records in their order."""
        yield self.process
        yield from self.tasks
        yield from self.events
        yield from self.messages
        yield self.end


def head_of(release: str, now: datetime, *, asked: Metadata | None = None) -> HeadRecord:
    """Return the head of a file that is made now."""
    return HeadRecord(format=FORMAT, release=release, made_at=now, asked=asked)


def write_line(record: Record) -> bytes:
    """Return a record as one line of JSON, with its end."""
    return record.model_dump_json(exclude_none=True).encode() + b"\n"


def read_line(line: bytes, *, number: int) -> Record:
    """Return the record of a line; raise InvalidRequest, which names its number and what is wrong."""
    try:
        record = _RECORD.validate_json(line)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc'][1:]) or 'the line'}: {fault['msg']}"
            for fault in faults[:_MOST_FAULTS]
        )
        raise InvalidRequest(f"line {number:,} is no record: {said}", field=f"line {number}") from None
    if isinstance(record, HeadRecord) and record.format > FORMAT:
        raise InvalidRequest(
            f"line {number:,}: a later release ({record.release}) wrote this, in format {record.format}; "
            f"this one reads up to format {FORMAT}",
            field=f"line {number}",
        )
    return record
