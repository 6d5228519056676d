"""Namespaces are checked when they are written down."""

import functools
import threading
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from progressor import Client, Engine
from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process, StateT
from progressor.handlers.schemas import schemas_of
from progressor.inputs import HistoryRange
from progressor.model import Intent, TaskType

LAST = HistoryRange(limit=10, direction="backward")


class Pay(BaseModel):
    amount: int


class Raw:
    async def process(self, task: Any, process: Any) -> Intent:
        return Intent()


def test_decorated_functions_are_returned_unchanged() -> None:
    """A handler can still be called, tested and reused as what it is."""
    namespace = Namespace("billing")

    async def function(process: Process[None]) -> None: ...

    assert namespace.init(function) is function
    assert namespace.call(function) is function
    assert namespace.call(name="again", history=LAST)(function) is function
    assert namespace.timeout(function) is function
    assert namespace.repair()(function) is function


@pytest.mark.parametrize("kind", ["init", "timeout", "repair", "call"])
def test_nothing_is_defined_twice(kind: str) -> None:
    """A second handler for the same task is a mistake, not a replacement."""
    namespace = Namespace("billing")

    async def function(process: Process[None]) -> None: ...

    getattr(namespace, kind)(function)
    with pytest.raises(InvalidRequest, match=rf"^namespace billing: {kind}.* is defined twice$"):
        getattr(namespace, kind)(function)


def none() -> None: ...
def three(process: Any, args: Any, more: Any) -> None: ...
def starred(process: Any, *args: Any) -> None: ...
def keyword(process: Any, *, args: Any) -> None: ...
def generator(process: Any) -> Any:
    yield 1


@pytest.mark.parametrize("function", [none, three, starred, keyword])
def test_wrong_parameters(function: Any) -> None:
    """A handler takes the process, and its arguments if any."""
    with pytest.raises(InvalidRequest, match=r"must take \(process\) or \(process, args\), not"):
        Namespace("billing").call(function)


def swapped(args: Any, process: Process[int]) -> None: ...
def swapped_and_plain(args: int, process: Process) -> None: ...


@pytest.mark.parametrize("function", [swapped, swapped_and_plain])
def test_the_process_comes_first(function: Any) -> None:
    """The error says so: not that it is no type of arguments."""
    with pytest.raises(InvalidRequest, match=rf"^{function.__name__} must take the process first"):
        Namespace("billing").call(function)


LOCK = threading.Lock()


def test_a_default_that_cannot_be_copied() -> None:
    """It could only be shared by all processes."""

    async def pay(process: Process[Any], args: Any = LOCK) -> None: ...

    with pytest.raises(InvalidRequest, match=r"^pay: the default of args cannot be copied for each step"):
        Namespace("billing").call(pay)


def test_a_timeout_takes_no_arguments() -> None:
    """Nobody could give them."""
    with pytest.raises(InvalidRequest, match=r"^bill must take \(process\), not"):

        @Namespace("billing").timeout
        async def bill(process: Process[None], args: Pay) -> None: ...


@pytest.mark.parametrize("function", [3, Pay, generator])
def test_other_things_than_functions(function: Any) -> None:
    """Classes, values and generators cannot serve a call."""
    with pytest.raises(InvalidRequest, match=r"must (be a function|return, not yield)"):
        Namespace("billing").call(function)


def test_the_name_of_a_call_is_a_keyword() -> None:
    """`@ns.call("pay")` says how to write it."""
    with pytest.raises(InvalidRequest, match=r"^write @call\(name='pay'\)$"):
        Namespace("billing").call("pay")  # type: ignore[type-var]


@pytest.mark.parametrize("name", ["", 3, "a\x00"])
def test_the_name_of_a_call_is_a_text(name: Any) -> None:
    """A call's name is a text that can be stored."""
    with pytest.raises(InvalidRequest, match=r"^call name must"):
        Namespace("billing").call(name=name)(keywordless)


def keywordless(process: Any) -> None: ...


def test_history_is_a_range() -> None:
    """history= takes a HistoryRange or None."""
    with pytest.raises(InvalidRequest, match=r"^history must be a HistoryRange or None"):
        Namespace("billing").call(history=10)(keywordless)  # type: ignore[call-overload]


def test_annotations_that_pydantic_does_not_know() -> None:
    """An argument type without a schema is refused, and so is one of the answer."""

    class Strange: ...

    with pytest.raises(InvalidRequest, match=r"^odd: args must be a type that pydantic knows"):

        @Namespace("billing").call
        async def odd(process: Process[None], args: Strange) -> None: ...

    with pytest.raises(InvalidRequest, match=r"^odd2: the return annotation must be a type"):

        @Namespace("billing").call
        async def odd2(process: Process[None]) -> Strange: ...


def test_a_state_that_pydantic_does_not_know() -> None:
    """state= is a type."""
    with pytest.raises(InvalidRequest, match=r"^state must be a type that pydantic knows"):
        Namespace("billing", state=object())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"step_timeout": timedelta(0)}, "step_timeout"),
        ({"concurrency": 0}, "concurrency"),
        ({"on_zombie": "x"}, "on_zombie"),
        ({"history": 3}, "history"),
        ({"handler": Raw}, "handler"),
        ({"handler": object()}, "handler"),
        ({"handler": Raw(), "state": Pay}, "state"),
        ({"handler": Raw(), "codec": object()}, "codec"),
        ({"codec": object()}, "codec"),
    ],
)
def test_wrong_options(options: dict[str, Any], field: str) -> None:
    """Each option that makes no sense is refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        Namespace("billing", **options)
    assert str(caught.value.field).startswith(field)


def test_a_name_is_needed() -> None:
    """A namespace has a proper name."""
    with pytest.raises(InvalidRequest, match=r"^namespace must match"):
        Namespace("a b")


def test_a_raw_handler_takes_no_decorated_functions() -> None:
    """Either a handler in bytes, or functions."""
    namespace = Namespace("raw", handler=Raw())
    assert namespace.is_raw
    with pytest.raises(InvalidRequest, match=r"^namespace raw has handler="):
        namespace.call(keywordless)


def test_history_of_a_task(make_task: Any) -> None:
    """A function's history= goes before the namespace's, also if it is None."""
    namespace = Namespace("billing", history=LAST)
    everything = HistoryRange()

    @namespace.call(history=everything)
    async def all_(process: Process[None]) -> None: ...
    @namespace.call(history=None, name="none")
    async def nothing(process: Process[None]) -> None: ...
    @namespace.call
    async def some(process: Process[None]) -> None: ...
    @namespace.timeout(history=everything)
    async def bill(process: Process[None]) -> None: ...

    asked = {name: namespace.history_for(make_task(name=name)) for name in ("all_", "none", "some")}
    assert asked == {"all_": everything, "none": None, "some": LAST}
    assert namespace.history_for(make_task(TaskType.NOTIFY, "all_")) is everything
    assert namespace.history_for(make_task(TaskType.TIMEOUT)) is everything
    assert namespace.history_for(make_task(TaskType.INIT)) is LAST
    assert namespace.history_for(make_task(name="unknown")) is LAST
    assert Namespace("raw", handler=Raw()).history_for(make_task()) is None


def test_whether_history_is_loaded() -> None:
    """It is if the namespace, or one of its functions, wants some: the worker asks no further if not."""
    assert Namespace("billing", history=LAST).loads_history
    namespace = Namespace("billing")

    @namespace.call(history=None)
    async def nothing(process: Process[None]) -> None: ...

    assert not namespace.loads_history

    @namespace.timeout("dunning", history=LAST)
    async def remind(process: Process[None]) -> None: ...

    assert namespace.loads_history
    assert namespace.extended().loads_history


def test_schemas() -> None:
    """The namespaces table gets JSON schemas of state, arguments and answers."""
    namespace = Namespace("billing", state=Pay)

    @namespace.init
    async def open_(process: Process[Pay], args: Pay) -> None: ...
    @namespace.call
    async def pay(process: Process[Pay], args: int) -> str:
        return ""

    @namespace.call
    async def bare(process: Process[Pay]) -> None: ...

    assert schemas_of(namespace) == {
        "state": Pay.model_json_schema(),
        "init": Pay.model_json_schema(),
        "calls": {
            "bare": {"args": None, "returns": None},
            "pay": {"args": {"type": "integer"}, "returns": {"type": "string"}},
        },
        "repair": None,
        "dry_run": False,
    }
    empty = {"state": None, "init": None, "calls": {}, "repair": None, "dry_run": False}
    assert schemas_of(Namespace("raw", handler=Raw())) == empty


def test_methods_partials_and_callable_objects_serve() -> None:
    """Whatever can be called with a process is a handler; one without a name needs name=."""
    namespace = Namespace("billing")

    class Service:
        async def pay(self, process: Process[None], args: Pay) -> int:
            return args.amount

        async def __call__(self, process: Process[None], args: "Pay") -> int:
            return args.amount

    namespace.call(Service().pay)
    namespace.call(name="object")(Service())
    namespace.call(name="partial")(functools.partial(three, more=1))
    with pytest.raises(InvalidRequest, match=r"^a Service has no name: write @call\(name="):
        namespace.call(Service())
    assert list(schemas_of(namespace)["calls"]) == ["object", "partial", "pay"]


@pytest.mark.parametrize("value", [{}, [], (), Pay(amount=1)])
def test_a_state_is_a_type(value: Any) -> None:
    """A value in its place is refused by the name of the parameter."""
    with pytest.raises(InvalidRequest, match=r"^state must be a type ") as refused:
        Namespace("billing", state=value)
    assert refused.value.field == "state"


@pytest.mark.parametrize("given", [Namespace("billing"), ["billing"], None, "billing"])
def test_namespaces_are_a_list(given: Any) -> None:
    """Of an engine and of a client: whatever else is given is refused by name."""
    for of in (Engine, Client):
        with pytest.raises(InvalidRequest, match=r"^namespaces must be a list of Namespace") as refused:
            of("postgresql://", given)
        assert refused.value.field == "namespaces"


def test_two_namespaces_of_one_name() -> None:
    """The error has the name."""
    with pytest.raises(InvalidRequest, match=r"the same name: billing$"):
        Engine("postgresql://", [Namespace("billing"), Namespace("other"), Namespace("billing")])


@pytest.mark.parametrize("declared", [int, list[int], Pay, None])
def test_a_process_of_another_state(declared: Any) -> None:
    """The function would read a state that is not there."""
    namespace = Namespace("billing", state=dict[str, int])

    async def serve(process: Process[declared]) -> None: ...

    with pytest.raises(
        InvalidRequest, match=r"^serve takes a process whose state is .*, but that of names"
    ):
        namespace.call(serve)


def test_processes_of_this_state_or_any() -> None:
    """A function may leave the state open, or name it; a namespace without a declared one takes all."""
    typed: Namespace[Any] = Namespace("billing", state=Pay)

    async def named(process: Process[Pay]) -> None: ...
    async def open_(process: Process[Any]) -> None: ...
    async def bare(process: Process) -> None: ...
    async def unresolved(process: "Process[Missing]") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    async def generic(process: Process[StateT]) -> None: ...
    async def optional(process: Process[Pay | None]) -> None: ...

    async def loose(process: Process[dict[str, Any]]) -> None: ...

    Namespace("loose", state=dict).init(loose)
    for function in (named, open_, bare, unresolved, generic, optional):
        typed.call(function)
        Namespace("open").call(function)
