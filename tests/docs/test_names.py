"""What the pages call by its name in code is there."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import progressor
from tests.docs.pages import ROOT, name_of, pages

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_IN_CODE = re.compile(r"`([^`\n]+)`")
_OF_A_CLASS = re.compile(r"\b([A-Z]\w+)\.(\w+)")
_CAMEL = re.compile(r"(?<![\w.])(?:[A-Z][a-z]+){2,}\b")
# Of systemd, pydantic and the original's interface, and two errors that are known by their names alone.
_NO_CLASSES = {"KillMode", "TimeoutStopSec", "ConfigDict", "StepTimeout", "ResultTooLarge"} | {
    "SinkEvent",
    "MachineEvent",
    "LifecycleEvent",
}
_PATH = re.compile(r"^(?:progressor|tests|benchmarks|examples|docs|alembic)/[\w./-]+$")


def _classes() -> dict[str, type]:
    """Every class of the package, by its name."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(progressor.__path__, "progressor.")
        if not found.name.endswith("__main__")
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__.startswith("progressor")
    }


CLASSES = _classes()


def _is_of(kind: type, name: str) -> bool:
    """As an attribute, a field, or something that it sets on itself."""
    return hasattr(kind, name) or name in kind.__annotations__ or f"self.{name}" in inspect.getsource(kind)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_what_a_page_names_in_code_is_there(page: Path) -> None:
    """Classes, their attributes, and files of the tree."""
    named = _IN_CODE.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    gone = [
        f"{owner}.{name}"
        for text in named
        for owner, name in _OF_A_CLASS.findall(text)
        if owner in CLASSES and not _is_of(CLASSES[owner], name)
    ]
    known = {*CLASSES, *dir(builtins)} | _NO_CLASSES
    gone += [word for text in named for word in _CAMEL.findall(text) if word not in known]
    gone += [text for text in named if _PATH.match(text) and "*" not in text and not (ROOT / text).exists()]
    assert gone == []
