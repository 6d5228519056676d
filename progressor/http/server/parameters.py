"""The parameters of an endpoint: its caller, its path, its query, read from a request.

Rule: a query parameter that the endpoint does not know, or that is given twice, is refused by its name. The
caller is admitted before anything else of the request is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, params
from pydantic import BaseModel, TypeAdapter, ValidationError

from progressor.errors import InvalidRequest
from progressor.handlers.codec import rule_of
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import TABLE

# The most query parameters of one request.
_MOST = 100


class Parameters:
    """The parameters of one endpoint, from its signature.

    FastAPI only documents them: if it read them, it would ignore unknown ones.
    """

    def __init__(self, endpoint: Callable[..., Any]) -> None:
        self._request: str | None = None
        self._dependencies: dict[str, Callable[[Request], Any]] = {}
        self._segments: dict[str, TypeAdapter[Any]] = {}
        self._queries: dict[str, TypeAdapter[Any]] = {}
        self._defaults: dict[str, Any] = {}
        self._model: tuple[str, type[BaseModel]] | None = None
        hints = get_type_hints(endpoint, include_extras=True)
        for name, parameter in signature(endpoint).parameters.items():
            self._add(name, parameter, hints.get(name))

    def _add(self, name: str, parameter: Parameter, hint: Any) -> None:
        marks = getattr(hint, "__metadata__", ())
        origin = getattr(hint, "__origin__", None)
        found = [each for each in marks if isinstance(each, params.Depends | params.Path | params.Query)]
        match found:
            case [] if hint is Request:
                self._request = name
            case [params.Depends(dependency=dependency)] if dependency is not None:
                self._dependencies[name] = dependency
            case [params.Path()]:
                self._segments[name] = TypeAdapter(hint)
            case [params.Query()] if isinstance(origin, type) and issubclass(origin, BaseModel):
                self._model = (name, origin)
            case [params.Query()] if parameter.default is not Parameter.empty and get_origin(hint):
                self._queries[name] = TypeAdapter(hint)
                self._defaults[name] = parameter.default
            case _:
                raise TypeError(f"{name} is neither a request, nor a dependency, a segment or a query")

    @property
    def dependencies(self) -> Collection[Callable[[Request], Any]]:
        """Return the dependencies, in their order."""
        return self._dependencies.values()

    async def admitted(self, request: Request) -> dict[str, Any]:
        """Return the values of the dependencies; one of them admits the caller, or raises Refusal."""
        values: dict[str, Any] = {} if self._request is None else {self._request: request}
        for name, dependency in self._dependencies.items():
            values[name] = await dependency(request)
        return values

    def values(self, request: Request) -> dict[str, Any]:
        """Return the values of the path and of the query; raise Refusal, which names each wrong one."""
        faults: list[tuple[str, str]] = []
        values = {
            name: _value(adapter, name, request.path_params[name], faults)
            for name, adapter in self._segments.items()
        }
        values |= self._defaults
        given = self._given(request.scope["query_string"], faults)
        if self._model is not None:
            name, model = self._model
            values[name] = _model(model, given, faults)
        else:
            values |= {
                name: _value(self._queries[name], name, text, faults) for name, text in given.items()
            }
        if faults:
            raise _refused(faults)
        return values

    def _given(self, query: bytes, faults: list[tuple[str, str]]) -> dict[str, str]:
        """Return the texts of the query; an unknown one, or one given twice, is added to the faults."""
        if not query:
            return {}
        known = self._queries if self._model is None else self._model[1].model_fields
        given: dict[str, str] = {}
        for name, text in _pairs(query):
            if name not in known:
                faults.append((name, f"unknown: this path takes {', '.join(sorted(known)) or 'no query'}"))
            elif name in given:
                faults.append((name, "given twice"))
            else:
                given[name] = text
        return given


def _pairs(query: bytes) -> Sequence[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST
        )
    except ValueError:
        raise InvalidRequest(
            f"the query must be percent-encoded UTF-8, with at most {_MOST} parameters", field="query"
        ) from None


def _value(adapter: TypeAdapter[Any], name: str, text: str, faults: list[tuple[str, str]]) -> Any:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        faults += ((name, rule_of(each)) for each in error.errors(include_url=False, include_input=False))


def _model(model: type[BaseModel], given: Mapping[str, str], faults: list[tuple[str, str]]) -> Any:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults += (
            (str(each["loc"][0]), rule_of(each))
            for each in error.errors(include_url=False, include_input=False)
        )


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
