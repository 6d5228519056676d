"""The lines of the billing service and of its twin with DBOS, which is not needed here."""

from __future__ import annotations

import ast

import pytest

from benchmarks.beside_dbos import lines
from tests.docs.pages import ROOT

FOLDER = ROOT / "benchmarks" / "beside_dbos"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""A module."""\n\n# A comment.\nx = 1  # one\n', 1),
        ('def f():\n    """Two\n    lines."""\n    return (\n        1\n    )\n', 4),
        ("x = '''\na text\n'''\n", 3),
    ],
)
def test_lines_of_code_are_counted(source: str, count: int) -> None:
    """Blank lines, comments and docstrings are none; each line of a text or of a long call is one."""
    assert lines.lines_of(source) == count


def test_the_page_has_the_numbers_of_the_counter() -> None:
    """Whoever changes a service changes the table."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert (
        page.partition("<!-- begin: lines -->\n")[2].partition("\n<!-- end: lines -->")[0] == lines.table()
    )


def test_the_twin_is_no_longer_than_the_rules_allow() -> None:
    """400 lines a file, 40 a function, as in the package."""
    for path in FOLDER.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 400, path.name
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{path.name}: {node.name}"
