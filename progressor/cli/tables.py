"""Rows for people: facts by their names; a table if the terminal is wide enough, else each row stacked.

Rule: no number, and nothing that identifies a row, is ever cut. In a stacked row the first cell stands on
top, and the other cells below it with their titles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from progressor.cli.output import note, print_json, stdout
from progressor.http.wire.models import plain
from progressor.texts import visible

T = TypeVar("T")

_GAP = 2
_UNBOUNDED = 100_000


def facts_table(style: str = "dim") -> Table:
    """Return a table of facts without any: rows of a name, in this style, and a value, which is folded."""
    table = Table.grid(padding=(0, _GAP))
    table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_found(
    found: Sequence[T],
    view: Callable[[Sequence[T]], RenderableType],
    nothing: str,
    *,
    machine: bool,
    document: Callable[[T], Any] = plain,
) -> None:
    """Print what was found: a list of documents for machines; for people a view, or a note of nothing."""
    if machine:
        print_json([document(each) for each in found])
    elif found:
        stdout().print(view(found))
    else:
        note(nothing)


class Listing:
    """Rows under titles; the columns in `numbers` are aligned to the right."""

    def __init__(self, *titles: str, numbers: Collection[str] = ()) -> None:
        self._titles = titles
        self._numbers = numbers
        self._rows: list[Sequence[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a row, with a cell for each title; of a `str`, control characters are shown."""
        self._rows.append([Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        unbounded = options.update(width=_UNBOUNDED, max_width=_UNBOUNDED)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        for row in self._rows:
            yield Text.assemble((f"{self._titles[0]} ", "dim"), row[0], overflow="fold")
            for line in self._stacked(row[1:], options.max_width - _GAP):
                yield Padding(line, (0, 0, 0, _GAP))

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
        for title in self._titles:
            table.add_column(title, justify="right" if title in self._numbers else "left", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        return table

    def _stacked(self, cells: Sequence[Text], width: int) -> Iterator[Text]:
        """Yield lines with as many cells and titles as fit; a longer cell is folded."""
        line = Text(overflow="fold")
        for title, cell in zip(self._titles[1:], cells, strict=True):
            if not cell.plain:
                continue
            part = Text.assemble((f"{title} ", "dim"), Text(", ").join(cell.split("\n")))
            if line.plain and line.cell_len + _GAP + part.cell_len > width:
                yield line
                line = Text(overflow="fold")
            line.append(" " * _GAP if line.plain else "").append_text(part)
        if line.plain:
            yield line
