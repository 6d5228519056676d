"""The typed layer: a namespace, its functions, and the types of their arguments, answers and state.

Rule: a step only looks up its function, decodes, calls and encodes. A Namespace is a Handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final, Unpack, overload

from progressor.codecs.codec import Codec, PlacedCodec
from progressor.config import NamespaceOptions, Rates
from progressor.errors import InvalidRequest
from progressor.handlers.codec import RAW, Wire
from progressor.handlers.decorators import Decorators
from progressor.handlers.dry_run import no_dry_runs, unguarded
from progressor.handlers.function import Function
from progressor.handlers.handler import (
    Group,
    Handler,
    InvalidCall,
    Keywords,
    MissingHandler,
    check_group,
    check_handler,
    group_key,
    plain_args,
)
from progressor.handlers.handler_profile import HandlerProfile
from progressor.handlers.limits import checked
from progressor.handlers.process import Draft, Process, StateT, WritableProcess
from progressor.handlers.state.shape import ANY, StateShape
from progressor.handlers.timers import TIMER_CALLS, carry_out, passed_over
from progressor.inputs import HistoryRange, check_namespace, names_like
from progressor.model import (
    Intent,
    Snapshot,
    Task,
    TaskType,
)


class Namespace(Decorators[StateT]):
    """A kind of process: its name, its options, and the functions that serve it.

    `state` is the type of the state (a pydantic model, or any type that pydantic knows; None: any JSON). A
    function that takes a `Process` of another state is refused: by type checkers, and as it is decorated.
    `handler` is a raw Handler instead of decorated functions. `step_timeout` (60 s) limits each run of a
    handler, `concurrency` (100) the steps of the namespace in one worker. `history` is the range of events
    that handlers get (None: none), `pause` the least time from the end of a step of a process to the begin
    of its next (None: none), `rate` how many steps begin in a time, over all workers (None: any). `group`
    returns the group of a process for the arguments of its start: of each group at most `group_limit` steps
    run at once, over all workers (None: as many as `set_group_limit` says), and so many begin as
    `group_rate` admits. `retention` says for how long what has ended is kept (None: for ever). With `feed`
    what its steps do can be followed by `client.subscribe`. `codec` stands between JSON and the tables;
    clients must use the same one. InvalidRequest, here and in the decorators, names an argument that cannot
    be used.

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
        codec: Codec | PlacedCodec | None = None,
        group: Group | None = None,
        **options: Any,
    ) -> None:
        name, stated = check_namespace(name), NamespaceOptions(**options)
        super().__init__(name, stated, declared=state, is_raw=handler is not None)
        self._group = check_group(group, self.options, is_raw=self.is_raw)
        self.has_groups: Final = group is not None
        self.rates: Final = Rates(self.options.rate, self.options.group_rate, enters=self.has_groups)
        self.holds: Final = self.has_groups or self.options.pause is not None
        self.is_limited: Final = self.holds or self.options.rate is not None
        self._handler = check_handler(handler, state=state, codec=codec)
        self.wire: Final[Wire] = Wire(codec) if handler is None else RAW
        self.shape: Final = ANY if state is None else StateShape(state)
        # The profile of a raw handler, which is one function for all tasks.
        self._profile = HandlerProfile()

    def __repr__(self) -> str:
        return f"<Namespace {self.name}>"

    def bound(self, resources: Mapping[str, Any]) -> Namespace[StateT]:
        """Return this namespace with the resources of its functions; itself if none takes any."""
        functions = {each: each.bound(resources) for each in self.functions}
        if all(each is function for function, each in functions.items()):
            return self
        return self._with(functions.__getitem__)

    def extended(self) -> Namespace[StateT]:
        """Return the same namespace, to which functions can be added."""
        return self._with(lambda function: function)

    def _with(self, function: Callable[[Function], Function]) -> Namespace[StateT]:
        changed = copy(self)
        vars(changed).update(
            _singles={key: function(each) for key, each in self._singles.items()},
            _calls={key: function(each) for key, each in self._calls.items()},
            _timeouts=self._timeouts.replaced(function),
        )
        return changed

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
        if task.task_type.is_timer and (skipped := passed_over(task)) is not None:
            return replace(skipped, response=self.wire.seal(skipped.response or b"", "response", task))
        if (is_dry_run := task.is_dry_run) and not self.dry_runs:
            raise InvalidCall(no_dry_runs(self.name), field="namespace")
        if self._handler is not None:
            raw = await self._profile.watched(self._handler.process, task, process)
            return self._timeouts.armed(process, task, checked(raw))
        function = self._function(task)
        plain = plain_args(task, self.wire)
        args = function.read_args(unguarded(plain) if is_dry_run else plain)
        view: WritableProcess[Any] = WritableProcess(
            process.snapshot, task, wire=self.wire, shape=self.shape, draft=Draft()
        )
        answer = function.write_answer(await function.call(view, *args))
        return self._timeouts.armed(process, task, view.intent(self.wire.seal(answer, "response", task)))

    def group_of(self, task: Task) -> str | None:
        """Return the group that a process enters with this init; None if it enters none.

        InvalidCall if its arguments do not fit, or if `group` raises or returns no text.
        """
        function = self._singles.get(TaskType.INIT)
        if self._group is None or function is None:
            return None
        return group_key(self._group, function.read_args(plain_args(task, self.wire)))

    def view(self, snapshot: Snapshot) -> Process[Any]:
        """Return a snapshot as `client.get` shows it, with its state of the declared type."""
        shape = None if self.is_raw else self.shape
        return Process(snapshot, wire=self.wire, shape=shape)

    def untyped(self) -> Namespace[Any]:
        """Return the same namespace for those who show states as they are stored, whatever its type."""
        shown = copy(self)
        vars(shown)["shape"] = ANY
        return shown

    def typed(self, process: Process[Any]) -> Process[StateT]:
        """Return a process of this namespace, read by a client, with its state as declared."""
        return process if self.is_raw else process.read_as(self.shape)

    def profile_of(self, task_type: TaskType, name: str | None) -> HandlerProfile | None:
        """Return the profile of the function that serves such a task; None: the task cannot be fused.

        It cannot without a function, with a history, which must be loaded first, or with a limit, which
        claims hold.
        """
        if self.is_limited or task_type is TaskType.REMOVE:
            return None
        if self._handler is not None:
            return self._profile if self.options.history is None else None
        function = self.find(task_type, name)
        return None if function is None or function.history is not None else function.profile

    def history_for(self, task: Task) -> HistoryRange | None:
        """Return the range of events to load before this task runs; None: no events."""
        function = self.find(task.task_type, task.name)
        return self.options.history if function is None else function.history

    def _function(self, task: Task) -> Function:
        function = self.find(task.task_type, task.name)
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
