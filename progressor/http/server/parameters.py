"""The parameters of an endpoint: the segments of its path and its query, read from a request.

Rule: a query parameter that the endpoint does not know is refused by its name, and so is one that is given
twice, unless it is a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from starlette.requests import Request

from progressor.errors import InvalidRequest
from progressor.errors.wordings import fault_text
from progressor.http.server.problems import Refusal
from progressor.http.wire.headers import JSON
from progressor.http.wire.paths import text_of
from progressor.http.wire.problems import TABLE
from progressor.inputs import (
    DEFAULT_TIMER,
    HIGHEST_PRIORITY,
    LAST_ID,
    LONGEST_SECONDS,
    MAX_ID_LENGTH,
    NAMESPACE_PATTERN,
    RESERVED,
    check_timer,
    is_moment,
    seconds_or_text,
)

# The most query parameters of one request: a hundred names of namespaces, as many of events, and others.
_MOST = 220
_SEGMENT = re.compile(r"{(\w+)}")
# No NUL, no dots alone (clients remove such a segment), no ~ in front (base64url begins so).
_ID_PATTERN = r"^(?!\.{1,2}$)[^~\u0000][^\u0000]*$"
_ID = "Percent-encoded UTF-8, or ~ and base64url of it."


def text_like(pattern: str, description: str | None = None) -> Any:
    """Return the documentation of a text no longer than an id; it checks nothing."""
    schema: dict[str, Any] = {"minLength": 1, "maxLength": MAX_ID_LENGTH, "pattern": pattern}
    return Field(description=description, json_schema_extra=schema)


def id_text(description: str) -> Any:
    """Return the rule of a query's text no longer than an id, which is checked."""
    return Field(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description=description,
        json_schema_extra={"pattern": r"^[^\u0000]*$"},
    )


def _call_name(segment: str) -> str:
    name = text_of(segment, "name")
    if name.startswith(RESERVED):
        # Calls that change timers need another scope.
        raise InvalidRequest(
            f"name must not begin with {RESERVED}: timers have their own address", field="name"
        )
    return name


def _timer_name(segment: str) -> str:
    name = text_of(segment, "timer")
    return "" if name == DEFAULT_TIMER else check_timer(name)


MetadataFilter = Annotated[
    str | None,
    Field(
        description="A JSON object; processes whose metadata contain all of it.",
        json_schema_extra={"contentMediaType": JSON},
    ),
]
# The patterns are for the document alone; the text that a segment stands for is checked elsewhere.
NamespaceName = Annotated[
    str, text_like(NAMESPACE_PATTERN, "The namespace."), AfterValidator(partial(text_of, field="namespace"))
]
ProcessId = Annotated[
    str,
    text_like(_ID_PATTERN, f"The process's id, any text of 1 to 256 characters. {_ID}"),
    AfterValidator(partial(text_of, field="process_id")),
]
CallName = Annotated[
    str,
    text_like(rf"^(?!{RESERVED}){_ID_PATTERN[1:]}", f"The call's name. {_ID}"),
    AfterValidator(_call_name),
]
TimerName = Annotated[
    str,
    text_like(_ID_PATTERN, f"The timer's name, `{DEFAULT_TIMER}` for the timer without a name. {_ID}"),
    AfterValidator(_timer_name),
]
GroupName = Annotated[
    str, text_like(_ID_PATTERN, f"The group. {_ID}"), AfterValidator(partial(text_of, field="group"))
]
TaskId = Annotated[int, Field(ge=1, le=LAST_ID, description="The task's id.")]
Fingerprint = Annotated[
    str | None,
    Field(
        pattern=r"^[A-Za-z0-9_-]{16}$",
        description="The fingerprint of the request, from the address that its answer gave.",
    ),
]

Expires = Annotated[
    float | None,
    Field(
        ge=1e-6,
        le=LONGEST_SECONDS,
        description="Seconds from its acceptance in which it must begin; later it is refused as `expired`.",
    ),
]

Priority = Annotated[
    int,
    Field(
        ge=-HIGHEST_PRIORITY,
        le=HIGHEST_PRIORITY,
        description="Each step is worth a minute of waiting: a higher one is begun earlier.",
    ),
]


def duration_of(seconds: float | None) -> timedelta | None:
    """Return a duration given in seconds; None for None."""
    return None if seconds is None else timedelta(seconds=seconds)


Only = Annotated[str | None, text_like(NAMESPACE_PATTERN, "Only this namespace.")]
Since = Annotated[
    str | None, Field(description="Only since this time, or within this last time: 3600, PT1H.")
]
_MOMENT, _DURATION = TypeAdapter(AwareDatetime), TypeAdapter(timedelta)


def since_of(since: str | None) -> datetime | timedelta | None:
    """Return a time, or how long ago; raise InvalidRequest for another text."""
    if since is None:
        return None
    try:
        if is_moment(since):
            return _MOMENT.validate_python(since)
        return _DURATION.validate_python(seconds_or_text(since))
    except (ValidationError, OverflowError):
        raise InvalidRequest(
            "since must be a time (2026-02-28T12:00:00Z), or a duration up to now (3600, PT1H)",
            field="since",
        ) from None


class Parameters:
    """The parameters of one endpoint, from its path and its signature."""

    def __init__(self, path: str, endpoint: Callable[..., Any]) -> None:
        self.segments = set(_SEGMENT.findall(path))
        hints = get_type_hints(endpoint, include_extras=True)
        # The first one is the request.
        _, *stated = signature(endpoint).parameters.values()
        fields: dict[str, Any] = {}
        for each in stated:
            is_segment = each.name in self.segments
            if not is_segment and each.default is Parameter.empty:
                raise TypeError(f"{each.name} is neither a segment of the path nor a query with a default")
            fields[each.name] = (hints[each.name], ... if is_segment else each.default)
        self.model: type[BaseModel] = create_model(endpoint.__name__, **fields)
        self._queries = fields.keys() - self.segments
        self._lists = {each.name for each in stated if _is_list(hints[each.name])}

    def values(self, request: Request) -> dict[str, Any]:
        """Return the values of the path and of the query; raise Refusal, which names each wrong one."""
        faults: list[tuple[str, str]] = []
        given = request.path_params | self._given(request.scope["query_string"], faults)
        try:
            values = vars(self.model.model_validate(given))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            faults += ((str(each["loc"][0]), fault_text(each)) for each in found)
        if faults:
            raise _refused(faults)
        return values

    def _given(self, query: bytes, faults: list[tuple[str, str]]) -> dict[str, str | list[str]]:
        """Return the texts of the query; an unknown one, or one given twice, is added to the faults."""
        given: dict[str, Any] = {}
        for name, text in _pairs(query) if query else ():
            if name not in self._queries:
                known = ", ".join(sorted(self._queries)) or "no query"
                faults.append((name, f"unknown: this path takes {known}"))
            elif name in self._lists:
                given.setdefault(name, []).append(text)
            elif name in given:
                faults.append((name, "given twice"))
            else:
                given[name] = text
        return given


def _is_list(hint: Any) -> bool:
    """Return whether a parameter of this type is a list, or None."""
    declared = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return any(get_origin(each) is list for each in (declared, *get_args(declared)))


def _pairs(query: bytes) -> Sequence[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST
        )
    except ValueError:
        raise InvalidRequest(
            f"the query must be percent-encoded UTF-8, with at most {_MOST} parameters", field="query"
        ) from None


def _refused(faults: Sequence[tuple[str, str]]) -> Refusal:
    field, rule = faults[0]
    return Refusal(
        TABLE[InvalidRequest],
        rule if rule.startswith(field) else f"{field}: {rule}",
        members={
            "field": field,
            "errors": [{"pointer": f"/{name}", "rule": each} for name, each in faults],
        },
    )
