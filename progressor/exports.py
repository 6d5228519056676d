"""Names that a package exports, imported at their first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_Exports = tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]


def exports(package: str, modules: Mapping[str, str]) -> _Exports:
    """Return `__all__`, `__getattr__` and `__dir__` of a package; `modules` maps modules to their names.

    The first use of a name imports its module. `__getattr__` raises AttributeError for any other name.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return list(homes), find, listed
