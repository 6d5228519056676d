"""Load the app that `module:attribute` names.

Rule: a wrong name is a usage error that lists the right ones; an error of the user's code is shown with
its traceback, from the user's first line on.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

import typer

from progressor.app.app import App
from progressor.cli.output import error_line
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace
from progressor.loggers import enable

_HINT = "APP"
OneNamespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace of APP.")]

T = TypeVar("T")


def namespaces_of(settings: Settings) -> Sequence[Namespace]:
    """Return the namespaces of the app that the settings name, for their codecs; none if they name none."""
    return () if settings.app is None else load(settings.app).namespaces


def untyped_namespaces(settings: Settings) -> Sequence[Namespace]:
    """Return the same for a command, which shows states as they are stored, and has stdout to itself."""
    with redirect_stdout(sys.stderr):
        return [each.untyped() for each in namespaces_of(settings)]


def name_of(settings: Settings) -> str:
    """Return the name of the app that the command line or the environment gives; BadParameter without."""
    if settings.app is None:
        raise _wrong("say which, as module:attribute, or set PROGRESSOR_APP")
    return settings.app


def load(app: str) -> App:
    """Load the app or namespaces of `module:attribute`, or of `module`; BadParameter without any."""
    name, colon, attribute = app.partition(":")
    if not name or (colon and not attribute):
        raise _wrong("write it as module:attribute, for example billing.app:namespaces")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise _wrong(f"write the module, not the file: {dotted}{colon}{attribute}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import(name)
    enable()
    return _named(module, attribute) if colon else _all(module)


def chosen(namespaces: tuple[Namespace, ...], name: str | None) -> list[Namespace]:
    """Return the namespace of this name, all of them without one; BadParameter if APP lacks it."""
    found = [each for each in namespaces if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in namespaces)
        raise typer.BadParameter(f"APP has {names}, not {name}", param_hint="--namespace")
    return found


def _wrong(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=_HINT)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _wrong(
                f"there is no module {error.name!r}, neither in {Path.cwd()} nor among the installed ones"
            ) from None
        raise _failed(name, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's module may raise anything
        raise _failed(name, error) from None


def _failed(name: str, error: BaseException) -> typer.Exit:
    """Show an error of the user's module without our frames and those of the import machinery."""
    frame = error.__traceback__
    while frame is not None and _is_machinery(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    # A SyntaxError has no frame of the user's code; its text names the place.
    for text in traceback.format_exception(type(error), error, frame):
        typer.echo(text, nl=False, err=True)
    error_line(f"importing {name!r} raised {type(error).__name__}, see the traceback above")
    return typer.Exit(1)


def _is_machinery(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in (__file__, importlib.__file__)


def _named(module: ModuleType, attribute: str) -> App:
    try:
        found = attrgetter(attribute)(module)
    except AttributeError:
        raise _wrong(
            f"module {module.__name__!r} has no attribute {attribute!r}{_others(module)}"
        ) from None
    if isinstance(found, App):
        return found
    if isinstance(found, Namespace):
        return App([found])
    if isinstance(found, list | tuple) and found and all(isinstance(each, Namespace) for each in found):
        return _app(found, f"{module.__name__}:{attribute}")
    raise _wrong(
        f"{module.__name__}:{attribute} must be an App, a Namespace or a list of Namespaces, "
        f"not {_kind(found)}{_others(module)}"
    )


def _kind(found: Any) -> str:
    if isinstance(found, list | tuple):
        odd = next((each for each in found if not isinstance(each, Namespace)), None)
        kind = type(found).__name__
        return f"an empty {kind}" if odd is None else f"a {kind} with a {type(odd).__name__}"
    return f"a {type(found).__name__}"


def _all(module: ModuleType) -> App:
    """Return the App of a module, or else an app of its namespaces."""
    apps = _unique(value for value in vars(module).values() if isinstance(value, App))
    if len(apps) > 1:
        named = ", ".join(f"{module.__name__}:{each}" for each in _names(module, App))
        raise _wrong(f"module {module.__name__!r} has more than one App: name one of {named}")
    if apps:
        return apps[0]
    found = _unique(value for value in vars(module).values() if isinstance(value, Namespace))
    if not found:
        raise _wrong(
            f"module {module.__name__!r} has no Namespace of its own, nor an App: "
            "name it as module:attribute"
        )
    return _app(found, module.__name__)


def _app(namespaces: Sequence[Namespace], name: str) -> App:
    try:
        return App(namespaces)
    except InvalidRequest as error:
        raise _wrong(f"{name}: {error}") from None


def _unique(found: Iterable[T]) -> list[T]:
    return list({id(each): each for each in found}.values())


def _others(module: ModuleType) -> str:
    found = [
        f"{what} {', '.join(names)}"
        for what, kind in (("the Apps", App), ("the namespaces", Namespace))
        if (names := _names(module, kind))
    ]
    return f"; it has {' and '.join(found)}" if found else ""


def _names(module: ModuleType, kind: type) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, kind)]
