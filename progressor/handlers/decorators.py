"""The functions of a namespace: the decorators that register them, and how a task finds its own.

Rule: signatures and types are read when a function is decorated. A step only looks up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, Unpack, overload

from progressor.calendars import Rule
from progressor.config import NamespaceOptions
from progressor.errors import InvalidRequest
from progressor.errors.wordings import SCHEDULES
from progressor.handlers.function import Function, add_function, names_around, shown_type
from progressor.handlers.handler_profile import HandlerProfile
from progressor.handlers.process import Process, StateT
from progressor.handlers.schedules import Doing, Schedule
from progressor.handlers.served import Served, mark
from progressor.handlers.timers import TIMER_CALLS, Timeouts
from progressor.inputs import RESERVED, HistoryRange, check_text, check_timer
from progressor.model import Task, TaskType

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
_Served = Callable[Concatenate[Process[S], P], T]
"""A function that serves processes of this state; a decorator returns it as it is."""


class _Inherit(Enum):
    """The option of the namespace, where None has a meaning of its own."""

    INHERIT = "inherit"


_INHERIT: Final = _Inherit.INHERIT
_BY_NAME: Final = (TaskType.CALL, TaskType.NOTIFY)
_History = HistoryRange | None | _Inherit


class Decorators(Generic[StateT]):
    """The functions of a namespace, and the decorators that register them: a part of every Namespace."""

    def __init__(self, name: str, options: NamespaceOptions, *, declared: Any, is_raw: bool) -> None:
        self.name: Final = name
        self.options: Final = options
        self.is_raw: Final = is_raw
        """True if a raw Handler serves it, in bytes."""
        self._declared = declared
        self._singles: dict[TaskType, Function] = {}
        self._calls: dict[str, Function] = {}
        # An old worker may begin a schedule of newer code: whoever has that serves its timers.
        self._timeouts = Timeouts(name, sets_any=is_raw or name == SCHEDULES)
        self.loads_history = options.history is not None
        """True if events are loaded before some of its tasks run."""
        self.dry_runs = False
        """True if its repair handler takes dry runs."""
        self.schedules: Final[dict[str, Schedule]] = {}
        """The schedules that it declares, by their names."""

    @property
    def functions(self) -> Sequence[Function]:
        """The decorated functions."""
        return (*self._singles.values(), *self._calls.values(), *self._timeouts.functions.values())

    @property
    def calls(self) -> Mapping[str, Function]:
        """The functions that serve calls, by their names."""
        return self._calls

    def find(self, task_type: TaskType, name: str | None = None) -> Function | None:
        """Return the function that serves tasks of a type, and of a name; None if none does."""
        if task_type in _BY_NAME:
            return self._calls.get(name or "")
        if task_type is TaskType.TIMEOUT:
            return self._timeouts.find(name)
        return self._singles.get(task_type)

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
        self, timer: str = ..., /, *, history: _History = ..., fused: bool | None = None
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def timeout(
        self, function: Any = None, /, *, history: _History = _INHERIT, fused: bool | None = None
    ) -> Any:
        """Serve timers with `(process)`: those of a name, or all that no other function serves.

        `@ns.timeout("dunning")` serves the timer of that name, `@ns.timeout` the one without a name and, as
        fallback, those whose names have no function. `history`, `fused` and InvalidRequest as for `init`.
        """
        timer, function = (function, None) if isinstance(function, str) else (None, function)
        around = names_around()
        return self._decorate(TaskType.TIMEOUT, function, around, name=timer, history=history, fused=fused)

    @overload
    def repair(self, function: _Served[StateT, P, T], /) -> _Served[StateT, P, T]: ...
    @overload
    def repair(
        self, /, *, history: _History = ..., dry_run: bool = False
    ) -> Callable[[_Served[StateT, P, T]], _Served[StateT, P, T]]: ...
    def repair(
        self, function: Any = None, /, *, history: _History = _INHERIT, dry_run: bool = False
    ) -> Any:
        """Serve `repair` with `(process[, args])`; `history` and InvalidRequest as for `init`.

        With `dry_run` it takes dry runs too, which show what a repair would do. It then does nothing
        outside of its process while `process.task.is_dry_run`: nothing of that can be rolled back.
        """
        if not isinstance(dry_run, bool):
            raise InvalidRequest("dry_run must be True or False", field="dry_run")
        self.dry_runs = self.dry_runs or dry_run
        return self._decorate(TaskType.REPAIR, function, names_around(), history=history)

    def schedule(self, name: str, every: timedelta | Rule, /, **doing: Unpack[Doing]) -> None:
        """Declare a schedule: at each time of `every`, one thing is sent, once, whatever the workers do.

        `start` starts a process of this namespace: its id, or a function of the nominal time that returns
        it. `notify` notifies a process: (namespace, process id, name of a call), or (function, process id).
        `each` notifies every running process of this namespace, or those with some metadata: an Each. The
        three exclude each other. `args` are the arguments, or a function of the nominal time that returns
        them. Both functions get the time in the zone of `every`.

        `overlap` says what becomes of a time at which the run before goes on: `skip` drops it, `queue` has
        it wait, `allow` sends it all the same. `catch_up`, `within`, `jitter` and `between` are SetTimer's.

        Each schedule is a process of the namespace `progressor.schedules`, which exists once an engine
        serves this namespace. InvalidRequest names an argument that cannot be used.
        """
        schedule = Schedule(self.name, name, every, **doing)
        if name in self.schedules:
            raise InvalidRequest(f"namespace {self.name} has two schedules {name!r}", field="name")
        self.schedules[name] = schedule

    def serves(self, task: Task) -> bool:
        """Return whether it has the function of a task; a raw handler has them all."""
        if self.find(task.task_type, task.name) is not None:
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
        if self.is_raw:
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
        self.loads_history = self.loads_history or isinstance(history, HistoryRange)
        # A repair is never fused.
        profile = None if task_type is TaskType.REPAIR else HandlerProfile(stated=fused)
        function = Function(
            target,
            name=label,
            takes_args=takes_args,
            around=around,
            profile=profile,
            history=self.options.history if isinstance(history, _Inherit) else history,
        )
        if self._declared is not None and not function.fits(self._declared):
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
