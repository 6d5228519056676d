"""What CONTRIBUTING.md says of every file is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.docs.pages import ROOT, read

_EXCEPTION = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\])(?P<reason>.*)$")
MOST_MODULES = 16
_RELATIVE = re.compile(r"(?:What|Who|Whose|Whom|How|Of|That|Whether|Which|Where|Whatever|Whoever)\b")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
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


def test_the_way_of_a_call_names_files_that_are_there() -> None:
    """Its modules and statements exist, by these names."""
    there = {path.name for path in (ROOT / "progressor").rglob("*.*")}
    way = read("CONTRIBUTING.md").partition("## One call")[2].partition("\n## ")[0]
    named = set(re.findall(r"\b\w+\.(?:py|sql)\b", way))
    assert named
    assert named <= there


def test_no_folder_has_too_many_modules() -> None:
    """Sixteen at most, to be read at a glance; the command line has a file for each command."""
    package = ROOT / "progressor"
    counts = {
        folder.relative_to(ROOT).as_posix(): len(
            [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        )
        for folder in (package, *(path.parent for path in package.rglob("__init__.py")))
        if folder.name != "cli"
    }
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    """None opens with a relative word, which has no subject that a reader can point at."""
    opened = [
        f"{name}: {text.partition(chr(10))[0]}"
        for name, source in _files("progressor")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)) is not None
        if _RELATIVE.match(text)
    ]
    assert opened == []


def test_a_class_has_a_name_of_its_own() -> None:
    """No two classes of the package share a name: a reader of one file knows what the name means."""
    named: dict[str, list[str]] = {}
    for name, text in _files("progressor"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(name)
    assert {name: files for name, files in named.items() if len(files) > 1} == {}


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
