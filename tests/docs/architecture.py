"""The rooms of the package and their order, from the import contracts and the docstrings of the folders.

`listing` is the text of CONTRIBUTING.md, `drawing` the picture of docs/explanation/architecture.md.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import ROOT

_PACKAGE = ROOT / "progressor"
_NAME_COLUMN = 19
# Pixels of the drawing.
_PAGE, _ROW, _GAP, _MARGIN, _HEAD = 1040, 34, 8, 16, 26


class Room(NamedTuple):
    """A folder or a module of the package: its name, how deep it stands, and its docstring's first line."""

    name: str
    depth: int
    text: str
    path: Path


def layers(container: str) -> list[list[str]]:
    """The layers of a container from the top down; the modules of one layer do not know each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in config["tool"]["importlinter"]["contracts"]:
        if container in contract.get("containers", ()):
            return [layer.split(" | ") for layer in contract["layers"]]
    return []


def rooms(container: str = "progressor", depth: int = 0) -> list[Room]:
    """The rooms of a container in the order of its layers, each followed by its own folders."""
    folder = ROOT / container.replace(".", "/")
    order = [name for layer in layers(container) for name in layer]
    there = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    # Inside a folder its modules are left out: their names say enough.
    names = [*order, *(name for name in there if name not in order)]
    found = []
    for name in names:
        path = folder / name if name in there else folder / f"{name}.py"
        if path.suffix and depth:
            continue
        found.append(Room(path.name if path.suffix else f"{name}/", depth, _first_line(path), path))
        if not path.suffix:
            found += rooms(f"{container}.{name}", depth + 1)
    return found


def _first_line(path: Path) -> str:
    source = path if path.suffix else path / "__init__.py"
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text is not None, f"{source} has no docstring"
    return text.partition("\n")[0]


def listing() -> str:
    """Each room with what it holds, one a line."""
    lines = []
    for room in rooms():
        name = "  " * (room.depth + 1) + room.name
        lines.append(f"{name:<{_NAME_COLUMN}}{room.text}")
    return "```text\nprogressor/\n" + "\n".join(lines) + "\n```\n"


def drawing() -> str:
    """The layers as an SVG: a room imports from rooms below it; those of one row do not know each other."""
    body = "".join(_layers_drawn("progressor", x=_MARGIN, y=_MARGIN, width=_PAGE - 2 * _MARGIN))
    height = _height_of_layers("progressor") + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_PAGE} {height}" '
        'font-family="system-ui, sans-serif" font-size="14">\n'
        "<title>The rooms of progressor: each imports from rooms below it</title>\n"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}</svg>\n'
    )


def _weight(name: str) -> int:
    """The width of a room, as many times that of a room without layers."""
    return max((sum(map(_weight, layer)) for layer in _named_layers(name)), default=1)


def _height(name: str) -> int:
    return _HEAD + _height_of_layers(name) + _GAP if layers(name) else _ROW


def _height_of_layers(container: str) -> int:
    heights = [max(map(_height, layer)) for layer in _named_layers(container)]
    return sum(heights) + _GAP * (len(heights) - 1)


def _named_layers(container: str) -> list[list[str]]:
    return [[f"{container}.{name}" for name in layer] for layer in layers(container)]


def _layers_drawn(container: str, *, x: int, y: int, width: int) -> Iterator[str]:
    for layer in _named_layers(container):
        height = max(map(_height, layer))
        room = (width - _GAP * (len(layer) - 1)) / sum(map(_weight, layer))
        left = float(x)
        for name in layer:
            own = room * _weight(name)
            yield from _room_drawn(name, x=round(left), y=y, width=round(own), height=height)
            left += own + _GAP
        y += height + _GAP


def _room_drawn(name: str, *, x: int, y: int, width: int, height: int) -> Iterator[str]:
    has_layers = bool(layers(name))
    is_folder = (ROOT / name.replace(".", "/")).is_dir()
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" '
        f'fill="{"#eef3fb" if is_folder else "#f7f7f7"}" stroke="#5b6b82"/>\n'
        f'<text x="{x + width // 2}" y="{y + (18 if has_layers else height // 2 + 5)}" '
        f'text-anchor="middle" fill="#1d2733">{escape(name.rpartition(".")[2])}</text>\n'
    )
    yield from _layers_drawn(name, x=x + _GAP, y=y + _HEAD, width=width - 2 * _GAP)
