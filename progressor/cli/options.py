"""The options that commands share."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from progressor.acts import acting
from progressor.cli.output import warning
from progressor.deployment.link import is_child
from progressor.deployment.settings import Settings, unknown_variables, variable_of
from progressor.errors import InvalidRequest

MACHINE = "progressor.machine"
_REASON = "reason"

_DATABASE, _LOGS, _METRICS, _HANDLERS = "Database", "Logs", "Metrics", "Handlers"


def _remember(context: typer.Context, value: bool) -> bool:
    context.meta[MACHINE] = value
    return value


AppName = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="module:attribute, an App, a Namespace or a list of these; or a module, for its App or all "
        "of its namespaces. Default: PROGRESSOR_APP.",
    ),
]
AppForCodecs = Annotated[
    str | None,
    typer.Argument(
        metavar="[APP]",
        help="module:attribute; needed if namespaces have codecs, and by api for --run-handlers. Default: "
        "PROGRESSOR_APP.",
    ),
]
NamespaceName = Annotated[str, typer.Argument(metavar="NAMESPACE")]
ProcessId = Annotated[str, typer.Argument(metavar="PROCESS_ID")]
Args = Annotated[
    str | None,
    typer.Argument(
        metavar="[ARGS]", help="JSON, or @file, or - for stdin. A text is JSON too: '\"text\"'."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", callback=_remember, help="Print answers and errors as JSON.")
]
IdempotencyKey = Annotated[
    str | None, typer.Option(help="A repetition with the same key has no second effect.")
]
Context = Annotated[str | None, typer.Option(help="JSON that the handler finds in process.context.")]
Metadata = Annotated[str | None, typer.Option(help="key=value or a JSON object, by which search finds it.")]
Timeout = Annotated[
    str | None, typer.Option(help="Time to wait for the answer: seconds, ISO 8601 or hh:mm:ss.")
]
Expires = Annotated[
    str | None, typer.Option(help="Time in which it must begin, else it is refused: seconds, ISO 8601.")
]
Priority = Annotated[
    int, typer.Option(metavar="N", help="-10 to 10: each step is worth a minute of waiting.")
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, which the audit keeps.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=_DATABASE,
        help="Better set PROGRESSOR_DATABASE_URL: it keeps a password out of the list of processes. "
        "Without both: the embedded PostgreSQL, which services and migrate use only with --embedded.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=_DATABASE, help="Folder of the embedded PostgreSQL. By default one for this folder."
    ),
]
DatabaseSchema = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_DATABASE,
        help="The PostgreSQL schema of the tables; the same for all services and clients.",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="OS processes that share the work; 0: one for each core that this one may use.",
        show_default="1",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_HANDLERS,
        help="The most steps of each namespace at once in each OS process.",
        show_default="as each Namespace says",
    ),
]
InsecureNoAuth = Annotated[
    bool | None,
    typer.Option(
        "--insecure-no-auth",
        help="Serve callers without credentials on any address: behind a gateway of your own.",
    ),
]
AllowedHosts = Annotated[
    str | None,
    typer.Option(
        "--allowed-hosts",
        metavar="NAMES",
        help="Host names under which callers without credentials are served: api,progressor.example.",
    ),
]
WithScanner = Annotated[
    bool | None,
    typer.Option(
        "--scanner/--no-scanner",
        rich_help_panel=_HANDLERS,
        help="Scan in this process.",
        show_default="scan",
    ),
]
WithZombieCollector = Annotated[
    bool | None,
    typer.Option(
        "--zombie-collector/--no-zombie-collector",
        rich_help_panel=_HANDLERS,
        help="Collect zombies in this process.",
        show_default="collect",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_HANDLERS,
        help="Exit with 0 after this many steps at most, to be restarted.",
        show_default="never",
    ),
]
MaxAge = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        rich_help_panel=_HANDLERS,
        help="The same after this time at most: seconds, ISO 8601 (P1D) or hh:mm:ss.",
        show_default="never",
    ),
]
Embedded = Annotated[
    bool,
    typer.Option(
        "--embedded",
        rich_help_panel=_DATABASE,
        help="Use this folder's embedded PostgreSQL, for development; without a database URL.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]
LogLevel = Annotated[str | None, typer.Option(rich_help_panel=_LOGS, help="debug, info, warning, error.")]
LogFormat = Annotated[str | None, typer.Option(rich_help_panel=_LOGS, help="auto, console, json.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(rich_help_panel=_METRICS, help="Serve /metrics and /health here; 0: on any free port."),
]
MetricsHost = Annotated[
    str | None,
    typer.Option(rich_help_panel=_METRICS, help="Address of these; 127.0.0.1 unless set otherwise."),
]


OF_APP: Mapping[str, Any] = {"app": AppName}
"""The argument of commands that need an app: see `apps.name_of`."""
FOR_CODECS: Mapping[str, Any] = {"app": AppForCodecs}
"""The argument of commands that need an app for its codecs alone: see `apps.namespaces_of`."""
ASKING: Mapping[str, Any] = {
    "database_url": DatabaseUrl,
    "database_schema": DatabaseSchema,
    "data_dir": DataDir,
    "log_level": LogLevel,
}
ACTING: Mapping[str, Any] = {"reason": Reason, **ASKING}
"""The options of commands whose acts the audit notes."""
SERVING: Mapping[str, Any] = {
    **ASKING,
    "log_format": LogFormat,
    "metrics_port": MetricsPort,
    "metrics_host": MetricsHost,
}
RUNNING: Mapping[str, Any] = {
    "processes": Processes,
    "concurrency": Concurrency,
    "scanner": WithScanner,
    "zombie_collector": WithZombieCollector,
    "max_steps": MaxSteps,
    "max_age": MaxAge,
}
"""The options of commands that run handlers."""
ADMITTING: Mapping[str, Any] = {"http_insecure_no_auth": InsecureNoAuth, "http_allowed_hosts": AllowedHosts}
"""The options of commands that serve callers over HTTP."""


def with_settings(shared: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options too; it gets them, over the environment, as `settings`.

    An option of the command's own whose name is that of a setting is a setting as well. The reason is that
    of all that the command does; one with such an option of its own gets it too.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name != "settings"]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in shared.items()
            if name not in {each.name for each in own}
        ]
        settable = {*shared, *(each.name for each in own if each.name in Settings.model_fields)} - {_REASON}
        typed = {each.name: _typed(each) for each in (*own, *more) if each.name in settable}

        @functools.wraps(function)
        def command(**given: Any) -> None:
            settings = read_settings(typed, **{name: given.pop(name) for name in settable})
            reason = given.get(_REASON)
            if _REASON in given and _REASON not in signature.parameters:
                del given[_REASON]
            with acting(reason=reason):
                function(settings=settings, **given)

        vars(command)["__signature__"] = signature.replace(parameters=[*own, *more])
        command.__annotations__ = {each.name: each.annotation for each in (*own, *more)}
        return command

    return decorate


def _typed(option: inspect.Parameter) -> str:
    """Return an option as it is typed: --processes."""
    declared: Sequence[str] = getattr(option.annotation.__metadata__[0], "param_decls", None) or ()
    names = [each.partition("/")[0] for each in declared if each.startswith("--")]
    return names[0] if names else f"--{option.name.replace('_', '-')}"


def read_settings(typed: Mapping[str, str] | None = None, /, **given: Any) -> Settings:
    """Read the settings: the environment, and over it the options that were given.

    BadParameter names an option as it is `typed`, where that was given, and else the variable.
    """
    # A child has the variables of its supervisor, which has warned of them.
    for name, nearest in () if is_child() else unknown_variables():
        warning(f"{name} is no setting" + (f": did you mean {nearest}?" if nearest else ""))
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except InvalidRequest as error:
        field = error.field or ""
        if given.get(field) is None or typed is None:
            raise typer.BadParameter(str(error)) from None
        says = str(error).removeprefix(f"{variable_of(field)}: ")
        raise typer.BadParameter(says, param_hint=typed[field]) from None


def given_on_command_line(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Return those of these parameters that the command line has given, in its words: --concurrency."""
    return [
        "/".join((*each.opts, *each.secondary_opts))
        for each in context.command.params
        if each.name is not None and each.name in names
        if (source := context.get_parameter_source(each.name)) and source.name == "COMMANDLINE"
    ]


def refuse_to_guess(settings: Settings, *, embedded: bool) -> None:
    """Demand a database URL or --embedded: a forgotten URL must not lead to an empty database."""
    if settings.database_url is None and not embedded:
        raise typer.BadParameter(
            "there is no database: set PROGRESSOR_DATABASE_URL, "
            "or say --embedded for the embedded PostgreSQL of this folder",
            param_hint="--database-url",
        )
    if settings.database_url is not None and embedded:
        raise typer.BadParameter("there is a database URL too: give one of both", param_hint="--embedded")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an action that cannot be undone; without a terminal it needs --yes, else BadParameter."""
    if yes:
        return
    if not _is_terminal():
        raise typer.BadParameter(
            f"there is no terminal to ask in: {question} Say so with --yes.", param_hint="--yes"
        )
    typer.confirm(question, abort=True, err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty()
