"""The typed layer: a namespace, its functions, and the types of their arguments, answers and state.

Rule: signatures and types are read when a function is decorated. A step only looks up, decodes, calls and
encodes. A Namespace is a Handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack, overload

from progressor.config import NamespaceOptions
from progressor.errors import InvalidRequest
from progressor.handlers.codec import RAW, Codec, Wire
from progressor.handlers.function import Function, add_function, names_around, shown_type
from progressor.handlers.handler import (
    Group,
    Handler,
    InvalidCall,
    Keywords,
    MissingHandler,
    check_group,
    check_handler,
    group_key,
)
from progressor.handlers.handler_profile import HandlerProfile
from progressor.handlers.limits import checked
from progressor.handlers.process import Draft, Process, StateT, WritableProcess
from progressor.handlers.served import Served, mark
from progressor.handlers.state.shape import ANY, StateShape
from progressor.handlers.timers import TIMER_CALLS, Timeouts, carry_out, passed_over
from progressor.inputs import RESERVED, check_namespace, check_text, check_timer, names_like
from progressor.model import HistoryRange, Intent, Snapshot, Task, TaskType, WantedConnection

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
_Served = Callable[Concatenate[Process[S], P], T]
"""A function that serves processes of this state; a decorator returns it as it is."""

_BY_NAME = (TaskType.CALL, TaskType.NOTIFY)


class _Inherit(Enum):
    """The option of the namespace, where None has a meaning of its own."""

    INHERIT = "inherit"


_INHERIT: Final = _Inherit.INHERIT
_History = HistoryRange | None | _Inherit


class Namespace(Generic[StateT]):
    """A kind of process: its name, its options, and the functions that serve it.

    `state` is the type of the state (a pydantic model, or any type that pydantic knows; None: any JSON). A
    function that takes a `Process` of another state is refused: by type checkers, and as it is decorated.
    `handler` is a raw Handler instead of decorated functions. `step_timeout` (60 s) limits each run of a
    handler, `concurrency` (100) the steps of the namespace in one worker. `history` is the range of events
    that handlers get (None: none), `pause` the least time from the end of a step of a process to the begin
    of its next (None: none). `group` returns the group of a process for the arguments of its start: of each
    group at most `group_limit` steps run at once, over all workers (None: as many as `set_group_limit`
    says). `codec` stands between JSON and the tables; clients must use the same one. InvalidRequest, here
    and in the decorators, names an argument that cannot be used.

    `on_zombie` decides on a task that lost its worker. `policy`: a timer is tried again by `retry_policy`,
    a request breaks the process; `retry`: either is tried again, up to `zombie_attempts` (3) times;
    `error`: either breaks the process.
    """

    @overload
    def __init__(self, name: str, *, state: type[StateT], **options: Unpack[Keywords]) -> None: ...
    @overload
    def __init__(
        self: Namespace[Any], name: str, *, state: Any = None, **options: Unpack[Keywords]
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        state: Any = None,
        handler: Handler | None = None,
        codec: Codec | None = None,
        group: Group | None = None,
        **options: Any,
    ) -> None:
        self.name: Final = check_namespace(name)
        self.options: Final = NamespaceOptions(**options)
        self._group = check_group(group, self.options, is_raw=handler is not None)
        self.has_groups: Final = group is not None
        self.is_limited: Final = self.has_groups or self.options.pause is not None
        self._handler = check_handler(handler, state=state, codec=codec)
        self.wire: Final[Wire] = Wire(codec) if handler is None else RAW
        self.shape: Final = ANY if state is None else StateShape(state)
        self._has_state, self._declared = state is not None, state
        self._singles: dict[TaskType, Function] = {}
        self._calls: dict[str, Function] = {}
        self._timeouts = Timeouts(name, is_raw=handler is not None)
        self._histories: dict[Function, HistoryRange | None] = {}
        # The profile of a raw handler, which is one function for all tasks.
        self._profile = HandlerProfile()

    def __repr__(self) -> str:
        return f"<Namespace {self.name}>"

    @property
    def is_raw(self) -> bool:
        """True if a raw Handler serves it, in bytes."""
        return self._handler is not None

    @property
    def functions(self) -> Sequence[Function]:
        """The decorated functions."""
        return (*self._singles.values(), *self._calls.values(), *self._timeouts.functions.values())

    def bound(self, resources: Mapping[str, Any]) -> Namespace[StateT]:
        """Return this namespace with the resources of its functions; itself if none takes any."""
        functions = {each: each.bound(resources) for each in self.functions}
        if all(each is function for function, each in functions.items()):
            return self
        bound = copy(self)
        vars(bound).update(
            _singles={key: functions[each] for key, each in self._singles.items()},
            _calls={key: functions[each] for key, each in self._calls.items()},
            _timeouts=self._timeouts.replaced(functions.__getitem__),
            _histories={functions[each]: history for each, history in self._histories.items()},
        )
        return bound

    @overload
    def init(self, function: _Served[StateT, P, T], /) -> _Served[StateT, P, T]: ...
    @overload
    def init(
        self, /, *, history: _History = ..., fused: bool | None = None
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def init(
        self, function: Any = None, /, *, history: _History = _INHERIT, fused: bool | None = None
    ) -> Any:
        """Serve `start` with `(process)` or `(process, args)`.

        `history` is the range of events to load (default: the namespace's; None: none). `fused`: True lets
        it run behind the lock of its process, so that a request of the worker's own OS process costs one
        commit: for a function that waits for nothing. False forbids that, None learns it. InvalidRequest
        for a function that cannot serve, or a second one.
        """
        return self._decorate(TaskType.INIT, function, names_around(), history=history, fused=fused)

    @overload
    def call(self, function: _Served[StateT, P, T], /) -> _Served[StateT, P, T]: ...
    @overload
    def call(
        self, /, *, name: str | None = None, history: _History = ..., fused: bool | None = None
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def call(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        history: _History = _INHERIT,
        fused: bool | None = None,
    ) -> Any:
        """Serve `call` and `notify` of this name (default: the function's), with `(process[, args])`.

        `history`, `fused` and InvalidRequest as for `init`; a name must not begin with `progressor:`.
        """
        around = names_around()
        return self._decorate(TaskType.CALL, function, around, name=name, history=history, fused=fused)

    @overload
    def timeout(self, function: _Served[StateT, P, T], /) -> _Served[StateT, P, T]: ...
    @overload
    def timeout(
        self, timer: str = ..., /, *, history: _History = ...
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def timeout(self, function: Any = None, /, *, history: _History = _INHERIT) -> Any:
        """Serve timers with `(process)`: those of a name, or all that no other function serves.

        `@ns.timeout("dunning")` serves the timer of that name, `@ns.timeout` the one without a name and, as
        fallback, those whose names have no function. `history` and InvalidRequest as for `init`.
        """
        timer, function = (function, None) if isinstance(function, str) else (None, function)
        return self._decorate(TaskType.TIMEOUT, function, names_around(), name=timer, history=history)

    @overload
    def repair(self, function: _Served[StateT, P, T], /) -> _Served[StateT, P, T]: ...
    @overload
    def repair(
        self, /, *, history: _History = ...
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def repair(self, function: Any = None, /, *, history: _History = _INHERIT) -> Any:
        """Serve `repair` with `(process[, args])`; `history` and InvalidRequest as for `init`."""
        return self._decorate(TaskType.REPAIR, function, names_around(), history=history)

    async def process(self, task: Task, process: Process[Any], /) -> Intent:
        """Run the function that serves the task, as a Handler does.

        InvalidCall if there is no such call, or its arguments do not fit; MissingHandler for a timer
        without a timeout handler; InvalidState if the state is not of its type; any error of the function.
        """
        if task.name in TIMER_CALLS:
            intent = carry_out(task, process.snapshot, self.wire)
            try:
                return self._timeouts.armed(process, task, intent)
            except (InvalidRequest, MissingHandler) as error:
                raise InvalidCall(str(error), field="timer") from None
        if (skipped := passed_over(task)) is not None:
            return skipped
        if self._handler is not None:
            raw = await self._profile.watched(self._handler.process(task, process))
            return self._timeouts.armed(process, task, checked(raw))
        function = self._function(task)
        args = function.read_args(self._plain_args(task))
        view: WritableProcess[Any] = WritableProcess(
            process.snapshot, task, wire=self.wire, shape=self.shape, draft=Draft()
        )
        answer = function.write_answer(await function.call(view, *args))
        return self._timeouts.armed(process, task, view.intent(self.wire.seal(answer)))

    def group_of(self, task: Task) -> str | None:
        """Return the group that a process enters with this init; None if it enters none.

        InvalidCall if its arguments do not fit, or if `group` raises or returns no text.
        """
        function = self._singles.get(TaskType.INIT)
        if self._group is None or function is None:
            return None
        return group_key(self._group, function.read_args(self._plain_args(task)))

    def view(self, snapshot: Snapshot) -> Process[Any]:
        """Return a snapshot as `client.get` shows it, with its state of the declared type."""
        shape = None if self.is_raw else self.shape
        return Process(snapshot, wire=self.wire, shape=shape)

    def typed(self, process: Process[Any]) -> Process[StateT]:
        """Return a process of this namespace, read by a client, with its state as declared."""
        return process if self.is_raw else process.read_as(self.shape)

    def profile_of(self, task_type: TaskType, name: str | None) -> HandlerProfile | None:
        """Return the profile of the function that serves such a task; None: the task cannot be fused.

        It cannot without a function, with a history, which must be loaded first, or with a limit, which
        claims hold.
        """
        if self.is_limited:
            return None
        if self._handler is not None:
            return self._profile if self.options.history is None else None
        function = self._calls.get(name or "") if task_type in _BY_NAME else self._singles.get(task_type)
        if function is None or self._histories.get(function, self.options.history) is not None:
            return None
        return function.profile

    def history_for(self, task: Task) -> HistoryRange | None:
        """Return the range of events to load before this task runs; None: no events."""
        function = self._find(task)
        default = self.options.history
        return default if function is None else self._histories.get(function, default)

    def connection_for(self, task: Task) -> WantedConnection | None:
        """Return the connection that the function of this task asks for, if it asks for one."""
        return None if (function := self._find(task)) is None else function.connection

    def schemas(self) -> dict[str, Any]:
        """Return the JSON schemas of the state, of arguments of start, calls and repair, and of answers."""
        init = self._singles.get(TaskType.INIT)
        repair = self._singles.get(TaskType.REPAIR)
        return {
            "state": self.shape.schema("validation") if self._has_state else None,
            "init": init and init.args_schema,
            "calls": {
                name: {"args": call.args_schema, "returns": call.returns_schema}
                for name, call in sorted(self._calls.items())
            },
            "repair": repair and repair.args_schema,
        }

    def serves(self, task: Task) -> bool:
        """Return whether it has the function of a task; a raw handler has them all."""
        if self._find(task) is not None:
            return True
        return self.is_raw or task.task_type is TaskType.REMOVE or task.name in TIMER_CALLS

    def served(self) -> list[str]:
        """Return the functions that it serves, each as Task.function; `*` for a raw handler."""
        if self.is_raw:
            return ["*"]
        calls = (f"call {each}" for each in self._calls)
        return [*map(str, self._singles), *self._timeouts.served(), *calls]

    def _decorate(
        self,
        task_type: TaskType,
        function: Any,
        around: Mapping[str, Any],
        *,
        history: _History,
        name: str | None = None,
        fused: bool | None = None,
    ) -> Any:
        if self._handler is not None:
            raise InvalidRequest(
                f"namespace {self.name} has handler=, so it takes no decorated functions",
                field="handler",
            )
        if not isinstance(history, HistoryRange | _Inherit | None):
            raise InvalidRequest("history must be a HistoryRange or None", field="history")
        if not isinstance(fused, bool | None):
            raise InvalidRequest("fused must be True, False or None", field="fused")

        def register(function: Callable[..., T]) -> Callable[..., T]:
            self._register(task_type, function, around, name=name, history=history, fused=fused)
            return function

        return register if function is None else register(function)

    def _register(
        self,
        task_type: TaskType,
        target: Callable[..., Any],
        around: Mapping[str, Any],
        *,
        name: str | None,
        history: _History,
        fused: bool | None,
    ) -> None:
        if isinstance(target, str):
            raise InvalidRequest(f"write @call(name={target!r})", field="name")
        label = getattr(target, "__name__", None) or type(target).__name__
        takes_args = task_type is not TaskType.TIMEOUT
        # Steps of other types are never fused.
        profile = HandlerProfile(stated=fused) if task_type in (TaskType.INIT, TaskType.CALL) else None
        function = Function(target, name=label, takes_args=takes_args, around=around, profile=profile)
        if self._has_state and not function.fits(self._declared):
            raise InvalidRequest(
                f"{label} takes a process whose state is {shown_type(function.state)}, "
                f"but that of namespace {self.name} is {shown_type(self._declared)}",
                field=label,
            )
        if task_type is TaskType.CALL:
            if name is None and not hasattr(target, "__name__"):
                raise InvalidRequest(f"a {label} has no name: write @call(name=...)", field="name")
            name = check_text("call name", label if name is None else name)
            if name.startswith(RESERVED):
                raise InvalidRequest(f"names of calls must not begin with {RESERVED!r}", field="name")
            add_function(self._calls, name, function, what=f"namespace {self.name}: call {name!r}")
        elif task_type is TaskType.TIMEOUT:
            if name is not None and not check_timer(name):
                raise InvalidRequest("the timer without a name is served by @timeout alone", field="timer")
            what = f"namespace {self.name}: timeout" + ("" if name is None else f" {name!r}")
            add_function(self._timeouts.functions, name or "", function, what=what)
        else:
            what = f"namespace {self.name}: {task_type}"
            add_function(self._singles, task_type, function, what=what)
        mark(target, Served(self.name, task_type, name, function.read_answer, self))
        if not isinstance(history, _Inherit):
            self._histories[function] = history

    def _find(self, task: Task) -> Function | None:
        if task.task_type is TaskType.CALL or task.task_type is TaskType.NOTIFY:
            return self._calls.get(task.name or "")
        if task.task_type is TaskType.TIMEOUT:
            return self._timeouts.find(task.name)
        return self._singles.get(task.task_type)

    def _function(self, task: Task) -> Function:
        function = self._find(task)
        if function is not None:
            return function
        if task.task_type.is_timer:
            return self._timeouts.function(task.name)
        if task.task_type in (TaskType.INIT, TaskType.REPAIR):
            raise InvalidCall(f"namespace {self.name} has no {task.task_type} handler", field="namespace")
        names = names_like(task.name or "", self._calls)
        raise InvalidCall(
            f"namespace {self.name} has no call named {task.name!r:.80} (it has: {names})",
            field="name",
        )

    def _plain_args(self, task: Task) -> bytes | None:
        # A timer keeps its rule there.
        if task.args is None or task.task_type.is_timer:
            return None
        try:
            return self.wire.unseal(task.args)
        except Exception as error:
            raise InvalidCall(
                f"args cannot be decoded ({type(error).__name__}): "
                "the client must use the namespace's codec",
                field="args",
            ) from error
