"""The lines of the same service with another engine are those that its page tells."""

from __future__ import annotations

from benchmarks.beside_dbos import lines
from tests.docs.pages import ROOT

_CODE = '''"""A docstring,
of two lines."""

# A comment.
def f() -> str:
    """One."""
    text = """
    two
    """  # three lines

    return text
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    """A text of several lines does, for it is no docstring."""
    assert lines.lines_of(_CODE) == 5


def test_the_page_has_the_lines_of_today() -> None:
    """`python -m benchmarks.beside_dbos.lines` prints the table of the page."""
    assert lines.table() in (ROOT / "benchmarks/beside_dbos/README.md").read_text()
