"""Records: a line says what was stored, and what is not whole is refused by its line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic_core import from_json

from progressor.archive.records import (
    EventRecord,
    HeadRecord,
    ProcessRecord,
    TaskRecord,
    WholeProcess,
    head_of,
    read_line,
    write_line,
)
from progressor.archive.wholes import read_wholes
from progressor.errors import InvalidRequest
from progressor.model import ProcessStatus, TaskStatus, TaskType

NOW = datetime(2040, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)
NAME = {"namespace": "shop.order", "process_id": "order-1"}


def task(task_id: int = 7, **fields: Any) -> TaskRecord:
    """A call that has ended."""
    ended = {"status": TaskStatus.FINISHED, "finished_time": NOW}
    return TaskRecord(
        **NAME | {"task_id": task_id, "task_type": TaskType.CALL, "scheduled_time": NOW} | ended | fields
    )


def whole(**fields: Any) -> WholeProcess:
    """A process with two events of one task."""
    facts = {"created_at": NOW, "status": "running", "status_changed_at": NOW, "last_event_id": 2}
    process = ProcessRecord(**NAME | facts | fields)
    events = [EventRecord(**NAME, event_id=n, task_id=7, timestamp=NOW, payload=b'{"n":1}') for n in (1, 2)]
    return WholeProcess(process, [task()], events, [])


def lines(of: WholeProcess) -> list[bytes]:
    """The lines of a process behind the head of its file."""
    return [write_line(each) for each in (head_of("1.0", NOW), *of.records())]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
STORED = st.binary() | JSON.map(lambda value: json.dumps(value, separators=(",", ":")).encode())


@given(state=STORED, args=st.none() | STORED)
def test_any_stored_value_comes_back(state: bytes, args: bytes | None) -> None:
    """Byte for byte, whether it is JSON, looks like base64, or is neither."""
    for record in (task(args=args, response=state), *whole(state=state).records()):
        assert read_line(write_line(record), number=1) == record


@pytest.mark.parametrize("text", ["\\u0000 cannot be converted to text.", "\\\\u0000", "\\"])
def test_a_text_that_speaks_of_nul(text: str) -> None:
    """PostgreSQL's own errors do; only the character itself cannot be stored."""
    for record in (task(error=text), whole(metadata={text: [text]}).process):
        assert read_line(write_line(record), number=1) == record
        with pytest.raises(InvalidRequest, match="must not contain NUL characters"):
            read_line(write_line(record).replace(b"\\\\", b"\\\\\\u0000", 1), number=1)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b'{"paid":3}', {"paid": 3}),
        (b'{"paid": 3}', {"base64": "eyJwYWlkIjogM30="}),
        (b'{"base64":"AA=="}', {"base64": "eyJiYXNlNjQiOiJBQT09In0="}),
        (b"null", {"base64": "bnVsbA=="}),
        (b"\x00prg", {"base64": "AHByZw=="}),
        (b"NaN", {"base64": "TmFO"}),
    ],
)
def test_json_is_readable(stored: bytes, shown: Any) -> None:
    """What is stored as JSON stands in the line as it is; anything else as base64."""
    assert from_json(write_line(task(args=stored)))["args"] == shown


def test_times_and_durations_are_exact() -> None:
    """To the microsecond."""
    record = task(last_retry_interval=timedelta(days=3, microseconds=1), request_hash=b"\x00\xff")
    assert read_line(write_line(record), number=1) == record


def test_a_process_is_read_whole() -> None:
    """As it was written, whatever stands around it."""
    one = whole()
    two = whole()
    assert list(read_wholes([*lines(one), b"\n", *lines(two)])) == [one, two]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda of: of[:-1], "the file ends within a process"),
        (lambda of: of[:2] + of[3:], "0 tasks in place of 1"),
        (lambda of: of[:3] + of[4:], "1 events in place of 2"),
        (lambda of: [of[2]], "it does not belong to the process before it"),
        (lambda of: of[:2] + of, "line 4: a process begins before the end of the one before it"),
        (lambda of: [b"{"], "line 1 is no record"),
        (lambda of: [b'{"kind":"task"}'], "namespace: Field required"),
        (lambda of: [of[0].replace(b'"format":1', b'"format":99')], "a later release (1.0) wrote this"),
        (lambda of: [*of[:2], of[2].replace(b"shop.order", b"bad name"), *of[3:]], "namespace must match"),
        (lambda of: [of[1].replace(b'"last', b'"paid":1,"last')], "paid: Extra inputs are not permitted"),
    ],
)
def test_what_is_not_whole_is_refused(change: Any, said: str) -> None:
    """By its line, with what is wrong."""
    with pytest.raises(InvalidRequest) as refused:
        list(read_wholes(change(lines(whole()))))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "tasks", "said"),
    [
        ({"last_event_id": 3}, [task()], "its events are not those from 1 to 3"),
        ({"first_event_id": 2}, [task()], "its events are not those from 2 to 2"),
        ({"status": ProcessStatus.ERROR}, [task()], "its status is error, without a detail"),
        ({"status": ProcessStatus.INIT}, [task()], "its status is init, but no init waits"),
        (
            {"status": ProcessStatus.ERROR, "detail": "x", "corrupted_by": 7},
            [task()],
            "corrupted_by is not the task",
        ),
        ({}, [task(8), task(7)], "its tasks are not in their order"),
        ({}, [task(finished_time=None)], "a task has ended without its time"),
        ({}, [task(7, idempotency_key="k"), task(8, idempotency_key="k")], "two tasks have one"),
        (
            {},
            [task(n, task_type="timeout", status="waiting", finished_time=None) for n in (7, 8)],
            "two timers have one name",
        ),
        ({}, [task(n, status="running", finished_time=None) for n in (7, 8)], "two tasks run"),
        ({}, [task(task_type="repair", status="waiting", finished_time=None)], "a repair waits"),
        ({"detail": "no\x00"}, [task()], "must not contain NUL"),
    ],
)
def test_what_no_process_can_be_is_refused(fields: Any, tasks: list[TaskRecord], said: str) -> None:
    """What somebody wrote by hand is checked for what the tables promise."""
    of = whole()
    process = of.process.model_copy(update=fields)
    with pytest.raises(InvalidRequest) as refused:
        list(read_wholes(lines(WholeProcess(process, tasks, of.events, []))))
    assert said in str(refused.value)


def test_a_head_of_a_later_release_may_say_more() -> None:
    """In the same format."""
    head = head_of("1.0", NOW).model_dump(mode="json") | {"host": "elsewhere"}
    assert isinstance(read_line(json.dumps(head).encode(), number=1), HeadRecord)
