"""One decorated function of a namespace: its signature is read once, so that a step reads nothing.

Rule: a faulty function raises InvalidRequest when it is decorated. A faulty request raises InvalidCall,
which refuses it and leaves the process alone.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy, deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import ValidationError

from progressor.errors import InvalidAnswer, InvalidRequest
from progressor.handlers.codec import Shape, decode, encode_json, faults, first_fault, non_finite_part
from progressor.handlers.handler import InvalidCall
from progressor.handlers.handler_profile import HandlerProfile
from progressor.handlers.process import Process
from progressor.handlers.running.threads import run_in_thread
from progressor.handlers.step_connection import (
    PARAMETER,
    wanted_connection,
    with_blocking_connection,
    with_connection,
)
from progressor.inputs import HistoryRange
from progressor.model import WantedConnection

if sys.version_info >= (3, 14):
    from annotationlib import Format

    # Annotations are evaluated now, perhaps before a type is defined: that one is a ForwardRef then.
    signature_of = partial(inspect.signature, annotation_format=Format.FORWARDREF)
else:
    signature_of = inspect.signature

_EMPTY = inspect.Parameter.empty
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_VALUE = (_EMPTY, Any, None, type(None))
_POSITIONAL_NAMES = ("process", "args")


class Function:
    """A user's function with the shapes of its arguments and its answer, and the names of its resources.

    InvalidRequest if it is no function, or its signature or an annotation cannot be used.
    """

    __slots__ = (
        "_args",
        "_default",
        "_is_async",
        "_returns",
        "_target",
        "call",
        "connection",
        "history",
        "name",
        "profile",
        "resources",
        "state",
    )

    def __init__(
        self,
        target: Callable[..., Any],
        *,
        name: str,
        takes_args: bool,
        around: Mapping[str, Any],
        profile: HandlerProfile | None = None,
        history: HistoryRange | None = None,
    ) -> None:
        self.name = name
        self.history = history
        """The range of events to load before it runs; None: no events."""
        self._target, self._is_async = target, is_async(target)
        if not self._is_async and profile is not None and profile.stated:
            raise InvalidRequest(f"{name} is a plain function, which runs in a thread", field="fused")
        parameters, keywords, returns = _signature(target, name, takes_args=takes_args)
        resolve = partial(_resolve, target=target, name=name, around=around)
        self.connection = _connection(keywords, resolve, name=name, is_async=self._is_async)
        """The connection that it asks for, on which its step is saved; None for most functions."""
        if self.connection is not None and profile is not None and profile.stated:
            raise InvalidRequest(f"{name} takes a connection, so no step of it can be fused", field="fused")
        self.profile = profile if self._is_async and self.connection is None else None
        """The profile of an async function; None: a step of it cannot be fused."""
        self.resources: Mapping[str, Any] = {
            each.name: _hint(each.annotation, resolve) for each in keywords if each.name != PARAMETER
        }
        """The resources that it takes by their names, with their types; Any for one that is not known."""
        self.call: Callable[..., Awaitable[Any]] = (
            partial(_unbound, self) if self.resources else self._caller({}, self.profile)
        )
        self.state = _state_of(parameters[0].annotation, resolve)
        """The type of the state that it expects of a process; Any if it does not say."""
        self._default = parameters[1].default if len(parameters) > 1 else _EMPTY
        self._args: Shape | None = None
        if len(parameters) > 1:
            annotation = parameters[1].annotation
            declared = Any if annotation is _EMPTY else resolve(annotation)
            if _is_process(declared):
                raise InvalidRequest(
                    f"{name} must take the process first, then the args: (process, args)", field=name
                )
            self._defaults(name)
            self._args = Shape(declared, field=f"{name}: args")
        answer = resolve(returns)
        self._returns = (
            None if answer in _BY_VALUE else Shape(answer, field=f"{name}: the return annotation")
        )

    def _defaults(self, name: str) -> tuple[Any, ...]:
        """Return the default argument: a copy, for what one step changes in it no other may see."""
        if self._default is _EMPTY:
            return ()
        if type(self._default) is object:
            # One that is known by its identity, and has nothing that a step could change.
            return (self._default,)
        try:
            return (deepcopy(self._default),)
        except Exception as error:
            raise InvalidRequest(
                f"{name}: the default of args cannot be copied for each step: {error}", field=name
            ) from error

    def bound(self, resources: Mapping[str, Any]) -> Function:
        """Return this function with its resources, which may be more; itself if it takes none."""
        if not self.resources:
            return self
        bound = copy(self)
        bound.profile = None if self.profile is None else HandlerProfile(stated=self.profile.stated)
        bound.call = self._caller({name: resources[name] for name in self.resources}, bound.profile)
        return bound

    def _caller(
        self, resources: Mapping[str, Any], profile: HandlerProfile | None
    ) -> Callable[..., Awaitable[Any]]:
        target = partial(self._target, **resources) if resources else self._target
        if self.connection is not None:
            target = partial(with_connection if self._is_async else with_blocking_connection, target)
        if not self._is_async:
            return partial(run_in_thread, target)
        return target if profile is None else partial(profile.watched, target)

    def fits(self, state: Any) -> bool:
        """Return whether it may serve processes of this state; only two unrelated classes do not fit."""
        one, other = (typing.get_origin(each) or each for each in (self.state, state))
        if not (_is_class(one) and _is_class(other)):
            return True
        return issubclass(one, other) or issubclass(other, one)

    def read_args(self, plain: bytes | None) -> tuple[Any, ...]:
        """Return the arguments of the function after the process; InvalidCall if they do not fit."""
        if self._args is None:
            if plain in (None, b"null", b"{}"):
                return ()
            raise InvalidCall(f"{self.name} takes no arguments", field="args")
        if plain is None or plain == b"null":
            return self._defaults(self.name) or (self._read_nothing(self._args),)
        try:
            args = self._args.read(plain)
        except ValidationError as error:
            raise _invalid_args(error) from None
        if (where := non_finite_part(args, plain, field="args")) is not None:
            # The state or the answer that is made of it would be refused, and break the process.
            raise InvalidCall(f"{where} must not be NaN or Infinity", field=where)
        return (args,)

    def write_answer(self, answer: Any) -> bytes:
        """Return the JSON of the function's answer, None included; bytes count as JSON already."""
        if type(answer) is bytes:
            return answer
        if answer is None:
            return b"null"
        if self._returns is None:
            return encode_json(answer, field="the answer")
        return self._returns.write(answer, field="the answer")

    def read_answer(self, plain: bytes) -> Any:
        """Return an answer as the declared type; raise InvalidAnswer if it does not fit."""
        if self._returns is None:
            return decode(plain, field="answer")
        try:
            return self._returns.read(plain)
        except ValidationError as error:
            raise InvalidAnswer(
                f"{self.name} has answered, but not with {self._returns.name}: {faults(error, 'answer')}"
            ) from None

    @property
    def args_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the arguments; None if the function takes none."""
        return None if self._args is None else self._args.schema("validation")

    @property
    def returns_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer; None if it is not annotated."""
        return None if self._returns is None else self._returns.schema("serialization")

    @staticmethod
    def _read_nothing(shape: Shape) -> Any:
        """Return the value of absent arguments: null, or an object whose fields all have defaults."""
        try:
            return shape.read(b"null")
        except ValidationError:
            pass
        try:
            return shape.read(b"{}")
        except ValidationError as error:
            raise _invalid_args(error) from None


def _invalid_args(error: ValidationError) -> InvalidCall:
    return InvalidCall(faults(error, "args"), field=first_fault(error, "args"))


async def _unbound(function: Function, *_args: Any) -> None:
    raise InvalidRequest(
        f"{function.name} takes resources ({', '.join(function.resources)}), which an engine hands to it",
        field="resources",
    )


def is_async(target: Callable[..., Any]) -> bool:
    """Return whether it is an async function, or an object that is called like one."""
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004  # the method itself is needed
    )


def _signature(
    target: Callable[..., Any], name: str, *, takes_args: bool
) -> tuple[list[inspect.Parameter], list[inspect.Parameter], Any]:
    """Return the parameters for process and arguments, those for resources, and the type of the answer."""
    if not callable(target) or isinstance(target, type):
        raise InvalidRequest(f"{name} must be a function, not {target!r:.80}", field=name)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidRequest(f"{name} must return, not yield", field=name)
    try:
        signature = signature_of(target)
    except (TypeError, ValueError, NameError) as error:
        raise InvalidRequest(f"{name} has no readable signature: {error}", field=name) from error
    keywords = [each for each in signature.parameters.values() if each.kind is _KEYWORD]
    parameters = [each for each in signature.parameters.values() if each.kind is not _KEYWORD]
    # A keyword with a default is the function's own affair (functools.partial makes such).
    resources = [each for each in keywords if each.default is _EMPTY]
    odd = any(each.kind not in _POSITIONAL for each in parameters)
    odd = odd or any(each.name in _POSITIONAL_NAMES for each in resources)
    if odd or not 1 <= len(parameters) <= (2 if takes_args else 1):
        forms = "(process) or (process, args)" if takes_args else "(process)"
        raise InvalidRequest(f"{name} must take {forms}, not {signature}", field=name)
    return parameters, resources, signature.return_annotation


def _connection(
    keywords: list[inspect.Parameter], resolve: Callable[[Any], Any], *, name: str, is_async: bool
) -> WantedConnection | None:
    annotation = next((each.annotation for each in keywords if each.name == PARAMETER), None)
    if annotation is None:
        return None
    return wanted_connection(resolve(annotation), name=name, is_async=is_async)


def _hint(annotation: Any, resolve: Callable[[Any], Any]) -> Any:
    """Return the type of a resource, which may be imported for type checkers alone: Any then."""
    with suppress(InvalidRequest):
        return Any if annotation is _EMPTY else resolve(annotation)
    return Any


def _is_process(declared: Any) -> bool:
    """Return whether it is Process, or Process of some state."""
    origin = typing.get_origin(declared) or declared
    return isinstance(origin, type) and issubclass(origin, Process)


def _state_of(annotation: Any, resolve: Callable[[Any], Any]) -> Any:
    """Return the state of `Process[State]`; Any for any other annotation."""
    # Process may be imported for type checkers alone.
    with suppress(InvalidRequest):
        declared = resolve(annotation)
        if _is_process(declared) and typing.get_args(declared):
            (state,) = typing.get_args(declared)
            return Any if isinstance(state, TypeVar) else state
    return Any


def _is_class(kind: Any) -> bool:
    # Any, unions and Annotated are classes too in some releases of Python.
    return isinstance(kind, type) and kind.__module__ not in ("typing", "types")


def shown_type(declared: Any) -> str:
    """Return a type as its author wrote it, for the text of an error."""
    return declared.__name__ if isinstance(declared, type) else str(declared)


def _resolve(annotation: Any, *, target: Callable[..., Any], name: str, around: Mapping[str, Any]) -> Any:
    """Return the type of an annotation, also under `from __future__ import annotations`."""
    if annotation is _EMPTY:
        return annotation
    plain = inspect.unwrap(target)
    module = getattr(plain, "__globals__", None) or getattr(inspect.getmodule(type(plain)), "__dict__", {})
    try:
        hints = typing.get_type_hints(
            SimpleNamespace(__annotations__={"it": annotation}),
            globalns=module,
            localns={**around, **_closure(plain)},
            include_extras=True,
        )
    except Exception as error:
        written = getattr(annotation, "__forward_arg__", annotation)
        raise InvalidRequest(
            f"{name}: annotation {written!r} cannot be resolved: {error}; "
            "define or import the type before the function, outside `if TYPE_CHECKING`",
            field=name,
        ) from error
    return hints["it"]


def _closure(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables that a function takes from the functions around it."""
    cells = getattr(target, "__closure__", None) or ()
    taken = {}
    for name, cell in zip(target.__code__.co_freevars if cells else (), cells, strict=True):
        # A cell is empty until its name is assigned.
        with suppress(ValueError):
            taken[name] = cell.cell_contents
    return taken


def names_around() -> dict[str, Any]:
    """Return the local names around the use of a decorator, which calls this: types may stand there."""
    frame = inspect.currentframe()
    # Two frames up: from this function to the decorator, and to the code that uses it.
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def add_function(functions: dict[Any, Function], key: Any, function: Function, *, what: str) -> None:
    """Add the function of a namespace; InvalidRequest if there is one for this already."""
    if key in functions:
        raise InvalidRequest(f"{what} is defined twice", field=str(key))
    functions[key] = function
