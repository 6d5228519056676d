"""The settings of a deployment: one class over the variables `PROGRESSOR_*`.

Rule: only commands read them. All other code takes options as arguments. Secrets stay in SecretStr and
appear in no error text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from progressor.config import ConnectionOptions, EngineOptions
from progressor.deployment.http_settings import HttpSettings
from progressor.errors import InvalidRequest
from progressor.errors.wordings import fault_text
from progressor.inputs import nearest_names, seconds_or_text

PREFIX = "PROGRESSOR_"
_DURATION = "Input should be a duration: seconds (1.5), ISO 8601 (PT1.5S) or hh:mm:ss"

# PROGRESSOR_ variables that are no settings: those of this project's tests, and those that Kubernetes sets
# in every pod beside a Service that is called "progressor", or "progressor-api".
_OTHERS = re.compile(rf"{PREFIX}(TEST_\w+|KEYS|(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_\w+))")
# A variable …PORT of Kubernetes is known by its value: no port of ours is an address.
_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]


class Variable(NamedTuple):
    """One variable, as a help text shows it."""

    name: str
    default: str
    description: str


class Settings(EngineOptions, HttpSettings, BaseSettings):
    """The settings of the environment, and those of the command line over them.

    Durations are seconds (`1.5`), ISO 8601 (`PT1.5S`) or `hh:mm:ss`. InvalidRequest names the variable.
    """

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        case_sensitive=False,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    database_url: SecretStr | None = None
    """URL of PostgreSQL: postgresql://user:password@host:5432/database. Unset: an embedded server."""
    app: str | None = None
    """The APP of commands that are given none, as module:attribute; those that show or write values do so
    with the codecs of its namespaces."""
    data_dir: Path | None = None
    """The folder of the embedded PostgreSQL's data. Unset: each working folder has its own."""
    postgres_bin_dir: Path | None = None
    """The folder of the embedded PostgreSQL's programs, if not in one of the usual places."""
    processes: int = Field(default=1, ge=0)
    """The number of OS processes of `progressor worker` or `api`; 0: one for each core that it may use."""
    http_run_handlers: bool = False
    """Run the handlers of APP in `progressor api APP`, too: it is a worker, with the settings of one."""
    max_steps: int | None = Field(default=None, ge=1)
    """After so many steps at most, a worker finishes what runs and ends with status 0. Unset: never."""
    max_age: timedelta | None = Field(default=None, gt=timedelta(0), le=timedelta(days=3650))
    """After so long at most, a worker finishes what runs and ends with status 0. Unset: never."""
    log_level: LogLevel = "info"
    """debug, info, warning or error."""
    log_format: LogFormat = "auto"
    """console, json, or auto: console in a terminal, JSON lines otherwise."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve /metrics and /health on this port; 0: any free one. Unset: not at all."""
    # Off and local by default: /health shows what is wrong, which is not for a whole network.
    metrics_host: str = "127.0.0.1"
    """The address on which metrics and health are served; 0.0.0.0 in a container."""

    def __init__(self, **values: Any) -> None:
        try:
            BaseSettings.__init__(self, **values)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = str(fault["loc"][0]).lower()
            says = _DURATION if fault["type"].startswith("time_delta") else fault_text(fault)
            raise InvalidRequest(f"{variable_of(field)}: {_in_variables(says)}", field=field) from None

    @field_validator("*", mode="before")
    @classmethod
    def _seconds(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a duration that is written as a number, which pydantic takes from numbers only."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if timedelta not in (kind, *get_args(kind)) or not isinstance(value, str):
            return value
        return seconds_or_text(value)

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    def connection_options(self) -> dict[str, Any]:
        """Return the keywords of a Client."""
        return {name: getattr(self, name) for name in ConnectionOptions.model_fields}

    def engine_options(self) -> dict[str, Any]:
        """Return the keywords of an Engine."""
        return {name: getattr(self, name) for name in EngineOptions.model_fields}

    @classmethod
    def variables(cls) -> Iterator[Variable]:
        """Yield all variables with their defaults, never with their values; the most used first."""
        lower = (*EngineOptions.model_fields, *HttpSettings.model_fields)
        own = [name for name in cls.model_fields if name not in lower]
        for name in (*own, *lower):
            field = cls.model_fields[name]
            text = " ".join((field.description or "").split())
            yield Variable(variable_of(name), _shown(field.default), text)


def variable_of(field: str) -> str:
    """Return the variable of a setting."""
    return f"{PREFIX}{field.upper()}"


def _in_variables(says: str) -> str:
    """Return what an error says with the variables of the settings that it names: lease_age is one."""
    return re.sub(
        r"\w+_\w+", lambda name: variable_of(name[0]) if name[0] in Settings.model_fields else name[0], says
    )


def unknown_variables() -> Iterator[tuple[str, str | None]]:
    """Yield the variables that look like settings and are none, each with the nearest setting or None."""
    known = [variable.name.removeprefix(PREFIX) for variable in Settings.variables()]
    for name, value in sorted(os.environ.items()):
        upper = name.upper()
        own = upper.removeprefix(PREFIX)
        is_other = _OTHERS.fullmatch(upper) or (own.endswith("PORT") and _ADDRESS.fullmatch(value))
        if upper.startswith(PREFIX) and own not in known and not is_other:
            nearest = nearest_names(own, known)
            yield name, PREFIX + nearest[0] if nearest else None


def _shown(default: Any) -> str:
    match default:
        case None:
            return ""
        case bool():
            return str(default).lower()
        case timedelta():
            return f"{default.total_seconds():g}"
        case _:
            return str(default)
