"""Pages with a bound in bytes: the first rows of a selection whose values have room together.

Rule: sizes are summed without reading the values. A row that is larger than the room comes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, FromClause, Select, Text, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB


def with_room(
    found: Select[Any], *, order: Sequence[str], sized: Sequence[str], room: int | BindParameter[int]
) -> FromClause:
    """Select the first rows of a selection, in this order, and the number of all its rows as `found`.

    `sized` are the columns whose bytes count. In `order` a - before a column means descending.
    """
    rows = found.subquery("rows_found")
    size = sum((_size(rows.c[name]) for name in sized[1:]), start=_size(rows.c[sized[0]]))
    before = func.sum(size).over(order_by=in_order(rows, order), rows=(None, -1))
    counted = select(
        rows, func.coalesce(before, 0).label("bytes_before"), func.count().over().label("found")
    ).subquery("sized")
    return select(counted).where(counted.c.bytes_before < room).subquery("page")


def in_order(rows: FromClause, order: Sequence[str]) -> list[ColumnElement[Any]]:
    """Return the columns of an order."""
    return [rows.c[name[1:]].desc() if name.startswith("-") else rows.c[name].asc() for name in order]


def _size(column: ColumnElement[Any]) -> ColumnElement[int]:
    value = cast(column, Text) if isinstance(column.type, JSONB | Text) else column
    return func.coalesce(func.octet_length(value), 0)
