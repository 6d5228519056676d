"""The user's view of a process, outside of a handler and in one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor.errors import InvalidRequest, InvalidState, ProgressorError
from progressor.handlers.codec import JSON, Wire
from progressor.handlers.process import Draft, Process, WritableProcess
from progressor.handlers.state.shape import ANY, StateShape
from progressor.model import Event, Intent, ProcessStatus, Remove
from progressor.timers import SetTimer, UnsetTimer

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Subscription(BaseModel):
    plan: str
    balance: int = 0


class Paid(BaseModel):
    amount: int


@pytest.fixture
def writable(make_task: Any, make_snapshot: Any) -> Callable[..., WritableProcess[Any]]:
    def make(state: Any = None, context: bytes | None = None, **more: Any) -> WritableProcess[Any]:
        shape = ANY if state is None else StateShape(state)
        task = make_task(context=context)
        return WritableProcess(make_snapshot(**more), task, wire=JSON, shape=shape, draft=Draft())

    return make


def test_a_client_reads_everything(make_snapshot: Any) -> None:
    """Outside of a handler a process shows what the tables say."""
    snapshot = make_snapshot(
        ProcessStatus.ERROR,
        previous_status=ProcessStatus.RUNNING,
        detail="ValueError: no",
        aux_state=b'{"plan":"pro"}',
        metadata={"tags": ["a"]},
        corrupted_by=5,
        last_event_id=2,
        history=(Event(b'{"a":1}', {"name": "opened"}, 1, NOW, 3), Event(b"\xff", {}, 2, NOW, 4)),
    )
    process: Process[Any] = Process(snapshot)
    for name in (
        "namespace",
        "process_id",
        "status",
        "previous_status",
        "status_changed_at",
        "created_at",
        "detail",
        "corrupted_by",
        "last_event_id",
        "aux_state",
        "metadata",
    ):
        assert getattr(process, name) == getattr(snapshot, name)
    assert process.state == {"plan": "pro"}
    assert process.history[0] == Event({"a": 1}, {"name": "opened"}, 1, NOW, 3)
    assert process.history[0].name == "opened"
    assert process.history[1].payload == b"\xff"
    assert process.history is process.history


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("emit()", lambda process: process.emit("paid")),
        ("set_timer()", lambda process: process.set_timer(after=timedelta(1))),
        ("unset_timer()", lambda process: process.unset_timer()),
        ("remove()", lambda process: process.remove()),
        ("state=", lambda process: setattr(process, "state", 1)),
        ("now", lambda process: process.now),
        ("context", lambda process: process.context),
        ("task", lambda process: process.task),
    ],
)
def test_a_client_cannot_act(make_snapshot: Any, what: str, use: Callable[[Any], Any]) -> None:
    """What belongs to a step is refused outside of one, by an error that says so."""
    process: Process[Any] = Process(make_snapshot())
    with pytest.raises(InvalidRequest) as caught:
        use(process)
    assert str(caught.value) == (f"{what} works only in a handler: this process was read by a client")


def test_repr_has_no_payloads(make_snapshot: Any) -> None:
    """A process can be printed and logged without giving away what it holds."""
    process: Process[Any] = Process(make_snapshot(aux_state=b'"secret"', last_event_id=3))
    assert repr(process) == "<Process 'billing/acme' running events=3>"


def test_processes_are_compared_by_identity(make_snapshot: Any) -> None:
    """Two views of one snapshot are two things."""
    snapshot = make_snapshot()
    one, two = Process[Any](snapshot), Process[Any](snapshot)
    assert one != two
    assert len({one, two}) == 2


def test_there_is_no_room_for_misspelled_fields(writable: Any) -> None:
    """A field that does not exist cannot be assigned by mistake."""
    with pytest.raises(AttributeError):
        writable().stat = 1


# State


def test_state_is_typed_and_saved_when_changed_in_place(writable: Any) -> None:
    """A change within the state is noticed."""
    process = writable(Subscription, aux_state=b'{"plan":"pro","balance":1}')
    process.state.balance += 1
    assert process.intent(None).aux_state == b'{"plan":"pro","balance":2}'


@pytest.mark.parametrize("read", [True, False])
def test_state_that_did_not_change_is_not_saved(writable: Any, *, read: bool) -> None:
    """Reading the state writes nothing."""
    process = writable(Subscription, aux_state=b'{"plan":"pro","balance":1}')
    if read:
        assert process.state.balance == 1
    assert process.intent(None) == Intent()


def test_state_is_none_before_the_first(writable: Any) -> None:
    """In init there is no state yet; leaving it so saves none."""
    process = writable(Subscription)
    assert process.state is None
    assert process.intent(None).aux_state is None
    process.state = Subscription(plan="pro")
    assert process.intent(None).aux_state == b'{"plan":"pro","balance":0}'


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"plan": "pro"}, "state must be Subscription, not dict"),
        (Paid(amount=1), "state must be Subscription, not Paid"),
        (None, "state must be Subscription, not NoneType"),
        (
            Subscription.model_construct(plan="pro", balance="much"),
            "state.balance: Input should be a valid integer",
        ),
        (Subscription.model_construct(plan=object()), "state.plan has no JSON form"),
    ],
)
def test_state_of_another_type_is_refused(writable: Any, state: Any, text: str) -> None:
    """A state that could not be read back is not saved; the error names the field."""
    process = writable(Subscription, aux_state=b'{"plan":"pro"}')
    process.state = state
    with pytest.raises(InvalidState, match=text):
        process.intent(None)


def test_stored_state_that_does_not_fit(writable: Any) -> None:
    """A state of another shape than the code expects says what is wrong, without the values."""
    process = writable(Subscription, aux_state=b'{"plan":{"secret":1}}')
    with pytest.raises(InvalidState, match=r"no Subscription: state\.plan: Input should be") as it:
        _ = process.state
    assert "secret" not in str(it.value)
    assert "'billing/acme'" in str(it.value)
    # Whoever reads a process catches it like any other error of ours.
    assert isinstance(it.value, ProgressorError)


def test_state_without_a_declared_type_is_any_json(writable: Any) -> None:
    """Without `state=` the state is a JSON value, changed in place or assigned."""
    process = writable(aux_state=b'{"n":[1]}')
    process.state["n"].append(2)
    assert process.intent(None).aux_state == b'{"n":[1,2]}'


# Metadata


def test_metadata_is_changed_in_place_and_the_snapshot_is_not(writable: Any) -> None:
    """A change in metadata, however deep, is saved, and the snapshot keeps what it had."""
    before = {"tags": ["a"], "plan": {"id": 1}}
    process = writable(metadata=before)
    process.metadata["tags"].append("b")
    process.metadata["plan"]["id"] = True
    assert process.intent(None).metadata == {"tags": ["a", "b"], "plan": {"id": True}}
    assert before == {"tags": ["a"], "plan": {"id": 1}}


def test_metadata_that_changed_only_its_json_type_is_saved(writable: Any) -> None:
    """1 and true are the same to Python but not to JSON."""
    process = writable(metadata={"paid": 1})
    process.metadata["paid"] = True
    assert process.intent(None).metadata == {"paid": True}


def test_metadata_that_was_only_read_is_not_saved(writable: Any) -> None:
    """Reading metadata writes nothing."""
    process = writable(metadata={"a": 1})
    assert process.metadata == {"a": 1}
    assert process.intent(None).metadata is None


def test_metadata_must_be_json(writable: Any) -> None:
    """Metadata that jsonb cannot hold fails the step and is named."""
    process = writable()
    process.metadata["rate"] = float("nan")
    with pytest.raises(InvalidRequest, match=r"metadata\.rate must not be NaN"):
        process.intent(None)


# Events, timers, removal


def test_emit_by_name_and_by_model(writable: Any) -> None:
    """An event has a name and a JSON payload; a model's name is its class's."""
    process = writable()
    process.emit("opened", plan="pro", event="also a payload")
    process.emit(Paid(amount=3))
    process.emit("closed")
    assert process.intent(None).events == (
        Event(b'{"plan":"pro","event":"also a payload"}', {"name": "opened"}),
        Event(b'{"amount":3}', {"name": "Paid"}),
        Event(b"{}", {"name": "closed"}),
    )


@pytest.mark.parametrize(
    ("emit", "text"),
    [
        (lambda process: process.emit(""), "event name must have 1 to 256 characters"),
        (lambda process: process.emit("\x00"), "event name must not contain NUL"),
        (lambda process: process.emit(3), r"emit\(\) takes a name or a model, not int"),
        (lambda process: process.emit(Paid), r"emit\(\) takes a name or a model"),
        (lambda process: process.emit(Paid(amount=1), a=1), r"emit\(model\) takes no further"),
        (lambda process: process.emit("paid", a=object()), r"event paid\.a has no JSON form"),
        (lambda process: process.emit("paid", a=float("nan")), r"event paid\.a must not be NaN"),
    ],
)
def test_a_wrong_event_is_refused_at_its_line(writable: Any, emit: Callable[[Any], Any], text: str) -> None:
    """What cannot be stored is refused by emit itself, not when the step is saved."""
    with pytest.raises(InvalidRequest, match=rf"^{text}"):
        emit(writable())


def test_the_last_action_counts(writable: Any) -> None:
    """Of several actions in one step the last replaces the others."""
    process = writable()
    process.remove()
    assert process.intent(None).action == Remove()
    process.unset_timer()
    assert process.intent(None).action == UnsetTimer()
    process.set_timer(at=NOW, remove=True)
    assert process.intent(None).action == SetTimer(at=NOW, remove=True)
    process.set_timer(after=timedelta(days=1))
    assert process.intent(None).action == SetTimer(after=timedelta(days=1))


def test_a_wrong_timer_is_refused_at_its_line(writable: Any) -> None:
    """A timer without a time, with a naive one or with a number is refused by set_timer."""
    process = writable()
    for wrong in ({}, {"at": datetime(2026, 1, 1)}, {"after": 30}, {"at": "now"}):
        with pytest.raises(InvalidRequest, match=r"^SetTimer"):
            process.set_timer(**wrong)


def test_the_step_knows_its_time_context_and_task(writable: Any, make_task: Any) -> None:
    """now is PostgreSQL's time of this step; context is what the caller gave."""
    process = writable(context=b'{"trace":"x"}')
    assert (process.now, process.context, process.task.task_id) == (NOW, {"trace": "x"}, 7)
    assert writable().context is None
    assert process.task.task_type == make_task().task_type


def test_there_is_no_now_before_the_task_runs(make_task: Any, make_snapshot: Any) -> None:
    """A task that never began has no time."""
    process: Process[Any] = Process(make_snapshot(), make_task(running_time=None), wire=Wire())
    with pytest.raises(InvalidRequest, match="no now"):
        _ = process.now
