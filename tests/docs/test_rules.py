"""What CONTRIBUTING.md says of every file is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.docs.pages import ROOT, read

_EXCEPTION = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\])(?P<reason>.*)$")
# The rooms of which the listing has each file.
_OPENED = ("client", "services", "worker", "node", "storage", "handlers")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each file below this folder."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def _functions(text: str) -> Iterator[_Function]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, _Function))


def _length(function: _Function) -> int:
    """Of its body, without its docstring."""
    said = ast.get_docstring(function) is not None and len(function.body) > 1
    return (function.end_lineno or 0) - function.body[said].lineno + 1


def test_the_listing_is_that_of_the_tree() -> None:
    """It has every room, and the way of a call names no file that is not there."""
    page = read("CONTRIBUTING.md")
    package = ROOT / "progressor"
    listing = page.partition("```text\nprogressor/\n")[2].partition("\n```")[0]
    rooms = [path for path in package.iterdir() if (path / "__init__.py").exists()]
    assert [room.name for room in rooms if f"  {room.name}/" not in listing] == []
    opened = [package, *(package / room for room in _OPENED)]
    files = [path.name for room in opened for path in room.glob("*.py") if path.name[0] != "_"]
    assert [name for name in files if not re.search(rf"\b{name}", listing)] == []
    there = {path.name for path in package.rglob("*.*")}
    way = page.partition("## One call")[2].partition("\n## ")[0]
    assert set(re.findall(r"\b\w+\.(?:py|sql)\b", listing + way)) <= there


def test_an_exception_from_a_lint_carries_its_reason() -> None:
    """Behind it, or as a comment on the line above."""
    bare = []
    for name, text in _files("progressor"):
        for before, line in pairwise(["", *text.splitlines()]):
            found = _EXCEPTION.search(line)
            if found and not found["reason"].strip(" -#") and not before.strip().startswith("#"):
                bare.append(f"{name}: {line.strip()}")
    assert bare == []


def test_files_and_functions_are_short() -> None:
    """400 lines a file, 40 a function."""
    long = [name for name, text in _files("progressor") if len(text.splitlines()) > 400]
    long += [
        f"{name}: {function.name}"
        for name, text in _files("progressor")
        for function in _functions(text)
        if _length(function) > 40
    ]
    assert long == []


def test_every_test_says_what_holds() -> None:
    """In a sentence, as its docstring; and its module says what it is about."""
    tests = [(name, text) for name, text in _files("tests") if Path(name).name.startswith("test_")]
    silent = [name for name, text in tests if not ast.get_docstring(ast.parse(text))]
    silent += [
        f"{name}: {function.name}"
        for name, text in tests
        for function in _functions(text)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_nothing_is_replaced_by_a_dotted_name() -> None:
    """`setattr` gets the object: a file that moves is then found wherever it is used."""
    assert [name for name, text in _files("tests") if re.search(r"setattr\(\s*['\"]", text)] == []
