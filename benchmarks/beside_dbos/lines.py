"""`python -m benchmarks.beside_dbos.lines`: the lines of code of both services, as the README tells them.

Rule: both are counted in the same way. A line counts if a token of code stands on it: blank lines, comments
and docstrings do not. Needs neither DBOS nor a database.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_OURS, _THEIRS = _ROOT / "examples/billing_service", _ROOT / "benchmarks/beside_dbos"
PARTS = {
    "The service": ([_OURS / "subscriptions.py", _OURS / "app.py"], [_THEIRS / "billing.py"]),
    "Shared: invoices, clients of the outside": ([_OURS / "tables.py", _OURS / "outside.py"],) * 2,
    "Its tests": ([_OURS / "test_service.py"], [_THEIRS / "scenario.py"]),
}
_NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def lines_of(source: str) -> int:
    """Return the lines of Python that have code on them."""
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            counted.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            counted -= _docstring(node)
    return len(counted)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    if ast.get_docstring(node) is None:
        return set()
    first = node.body[0]
    return set(range(first.lineno, (first.end_lineno or first.lineno) + 1))


def _sum(files: Iterable[Path]) -> int:
    return sum(lines_of(file.read_text(encoding="utf-8")) for file in files)


def table() -> str:
    """Return the table of the README."""
    rows = [f"| {part} | {_sum(ours)} | {_sum(theirs)} |" for part, (ours, theirs) in PARTS.items()]
    return "\n".join(["| Lines of code | Progressor | DBOS |", "|---|--:|--:|", *rows])


if __name__ == "__main__":
    print(table())
