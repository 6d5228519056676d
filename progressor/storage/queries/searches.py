"""Searches: pages of processes with their timers, as statements in SQLAlchemy Core.

Rule: a page reads a bounded part of an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    LargeBinary,
    ScalarSelect,
    Select,
    and_,
    cast,
    func,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from progressor.model import Snapshot
from progressor.storage.queries.criteria import Wanted
from progressor.storage.queries.cursors import SearchPlace, place_of, written
from progressor.storage.queries.pages import in_order, with_room
from progressor.storage.queries.timers import running_timer, shown_timers, timers_of, waiting_timer
from progressor.storage.rows import snapshot_of
from progressor.storage.schema import namespaces, processes, schedule
from progressor.storage.statements import Row

# Processes that one page of a search by the name of a timer, or for those without one, looks at.
MOST_LOOKED_AT = 10_000

PROCESS = tuple(
    processes.c[name]
    for name in (
        "process_no", "process_id", "status", "previous_status", "status_changed_at", "created_at",
        "detail", "aux_state", "metadata", "corrupted_by", "last_event_id", "birth", "first_event_id",
        "swept_until",
    )
)  # fmt: skip
_WITHOUT_STATE = tuple(
    null().cast(LargeBinary).label("aux_state") if column is processes.c.aux_state else column
    for column in PROCESS
)
_BY_CREATION = (processes.c.namespace_no, processes.c.created_at, processes.c.process_no)

_IN_ORDER = ("namespace_no", "at", "no")

_DUE = schedule.alias("due")


@dataclass(frozen=True, slots=True)
class Search:
    """The statements of a search, and the page that their rows become."""

    wanted: Wanted

    def statement(self, limit: int, cursor: str | None) -> Select[Any]:
        """Select a page of at most `limit` processes, and one more if there are more."""
        after = place_of(cursor, self.wanted)
        match self.wanted.timer:
            case "overdue":
                return self._with_timers(self._overdue(limit, after))
            case "held" | None:
                return self._with_timers(self._by_creation(limit, after))
            case _:
                return self._by_timers(limit, after)

    def among(self, process_nos: Sequence[int], limit: int, cursor: str | None) -> Select[Any]:
        """Select a page of those of these processes that match, each by its number."""
        after = place_of(cursor, self.wanted)
        numbers = (
            func.unnest(cast(list(process_nos), ARRAY(BigInteger)))
            .table_valued("no", name="i")
            .render_derived()
        )
        one = (
            select(*self._found)
            .where(processes.c.process_no == numbers.c.no)
            # A fence: each is looked up, whatever is wanted of it.
            .offset(0)
            .lateral("one")
        )
        wanted = [*self._matching(one), *self._in_namespaces(one)]
        source, at, no = numbers.join(one, true()), one.c.created_at, one.c.process_no
        if self.wanted.timer == "overdue":
            due = (
                select(_DUE.c.scheduled_time, _DUE.c.task_id)
                .where(
                    literal_column("due.process_no + 0") == one.c.process_no,
                    text("due.claimable AND due.task_type IN ('timeout', 'remove')"),
                    _DUE.c.scheduled_time <= func.now(),
                )
                .limit(1)
                .lateral("its_due")
            )
            source, at, no = source.join(due, true()), due.c.scheduled_time, due.c.task_id
        key = (one.c.namespace_no, at, no)
        if after is not None:
            wanted.append(tuple_(*key) > tuple_(*after))
        columns = [column for column in one.c if column.name not in ("at", "no")]
        found = select(*columns, at.label("at"), no.label("no")).select_from(source).where(*wanted)
        return self._with_timers(found.order_by(*key).limit(limit + 1))

    def _matching(self, one: FromClause) -> list[ColumnElement[bool]]:
        """Return what is wanted of a process that is at hand."""
        wanted: list[ColumnElement[bool]] = []
        if self.wanted.status is not None:
            wanted.append(one.c.status == self.wanted.status)
        if self.wanted.timer is not None:
            wanted.append(self._has_timer(one))
        if self.wanted.metadata:
            wanted.append(one.c.metadata.contains(self.wanted.metadata))
        if self.wanted.created_after is not None:
            wanted.append(one.c.created_at >= self.wanted.created_after)
        if self.wanted.created_before is not None:
            wanted.append(one.c.created_at < self.wanted.created_before)
        return wanted

    def _has_timer(self, one: FromClause) -> ColumnElement[bool]:
        """Return the condition of a process that has the timer that is wanted, or none if none is."""
        match self.wanted.timer:
            case "held":
                return and_(one.c.detail.is_not(None), waiting_timer(one).is_not(None))
            case "none":
                return and_(waiting_timer(one).is_(None), running_timer(one).is_(None))
            case "overdue":
                # What a search joins: the due timer that is to be claimed.
                return true()
            case name:
                return or_(waiting_timer(one, name).is_not(None), running_timer(one, name).is_not(None))

    def _in_namespaces(self, one: FromClause) -> list[ColumnElement[bool]]:
        names = self.wanted.names
        if names is None:
            return []
        numbers = select(namespaces.c.namespace_no).where(namespaces.c.name.in_(names))
        return [one.c.namespace_no.in_(numbers)]

    def page(self, rows: list[Row], limit: int) -> tuple[list[Snapshot], str | None]:
        """Return the processes of these rows, and the cursor of the next page, None at the end."""
        found = [row for row in rows if row["process_no"] is not None]
        items = [
            snapshot_of(row["namespace"], row["process_id"], row, shown_timers(row))
            for row in found[:limit]
        ]
        last: tuple[Any, ...] | None = None
        if found and found[0]["found"] > len(items):
            row = found[len(items) - 1]
            last = (row["namespace_no"], row["at"], row["no"])
        elif rows and rows[0].get("looked_at") == MOST_LOOKED_AT:
            last = (rows[0]["end_namespace_no"], rows[0]["end_at"], rows[0]["end_no"])
        return items, None if last is None else written(SearchPlace(*last), self.wanted)

    @property
    def _found(self) -> tuple[ColumnElement[Any], ...]:
        return (*(PROCESS if self.wanted.states else _WITHOUT_STATE), processes.c.namespace_no)

    def _with_room(self, found: Select[Any]) -> FromClause:
        return with_room(
            found, order=_IN_ORDER, sized=("aux_state", "metadata", "detail"), room=self.wanted.room
        )

    def _with_timers(self, found: Select[Any]) -> Select[Any]:
        """Select the timers of each row of the page, and of no row that was passed by."""
        page = self._with_room(found)
        return select(page, timers_of(page), _name_of(page)).order_by(*in_order(page, _IN_ORDER))

    def _conditions(self) -> list[ColumnElement[bool]]:
        # Each condition with the predicate of the index that serves it, and of no other one.
        wanted: list[ColumnElement[bool]] = [processes.c.created_at > text("'-infinity'")]
        if self.wanted.status == "error" or self.wanted.timer == "held":
            # By a constraint these are the broken ones. With a condition on the status too, the planner
            # would, before the first ANALYZE, expect so few that it reads and sorts all of them for a page.
            wanted = [processes.c.detail.is_not(None)]
        if self.wanted.status not in (None, "error"):
            wanted.append(processes.c.status == self.wanted.status)
        if self.wanted.timer == "held":
            wanted.append(waiting_timer(processes).is_not(None))
        if self.wanted.metadata:
            wanted.append(processes.c.metadata.contains(self.wanted.metadata))
            wanted.append(processes.c.metadata != text("'{}'::jsonb"))
        if self.wanted.created_after is not None:
            wanted.append(processes.c.created_at >= self.wanted.created_after)
        if self.wanted.created_before is not None:
            wanted.append(processes.c.created_at < self.wanted.created_before)
        return wanted

    def _in_order(self, *columns: Any, after: tuple[Any, ...] | None, limit: int) -> Select[Any]:
        if self.wanted.namespaces is not None:
            return self._of_each(*columns, after=after, limit=limit)
        wanted = self._conditions()
        if self.wanted.namespace is not None:
            wanted.append(processes.c.namespace_no == number_of(self.wanted.namespace))
        wanted += self._behind(after, _BY_CREATION)
        return select(*columns).where(*wanted).order_by(*_BY_CREATION).limit(limit)

    def _behind(
        self, after: tuple[Any, ...] | None, key: tuple[ColumnElement[Any], ...]
    ) -> list[ColumnElement[bool]]:
        """Return the conditions of rows behind this place, in the order of `key`."""
        if after is None:
            return []
        if self.wanted.namespace is None:
            return [tuple_(*key) > tuple_(*after)]
        # The planner cannot begin at a row whose first column is fixed by a condition: compare the others.
        return [key[0] == after[0], tuple_(*key[1:]) > tuple_(*after[1:])]

    def _of_each(self, *columns: Any, after: tuple[Any, ...] | None, limit: int) -> Select[Any]:
        """Select as `_in_order`, of some namespaces: at most a page of each, not the rows between them."""
        wanted = self._conditions()
        if after is not None:
            wanted.append(tuple_(*_BY_CREATION) > tuple_(*after))
        one = (
            select(*columns)
            .where(processes.c.namespace_no == namespaces.c.namespace_no, *wanted)
            .correlate(namespaces)
            .order_by(*_BY_CREATION[1:])
            .limit(limit)
            .lateral("one")
        )
        found = select(one).select_from(namespaces.join(one, true())).where(*self._wanted_namespaces(after))
        return found.order_by(one.c.namespace_no, one.c.created_at, one.c.process_no).limit(limit)

    def _wanted_namespaces(self, after: tuple[Any, ...] | None) -> list[ColumnElement[bool]]:
        wanted: list[ColumnElement[bool]] = []
        if self.wanted.namespace is not None:
            wanted.append(namespaces.c.name == self.wanted.namespace)
        elif after is not None:
            wanted.append(namespaces.c.namespace_no >= after[0])
        if self.wanted.namespaces is not None:
            wanted.append(namespaces.c.name.in_(self.wanted.namespaces))
        return wanted

    def _by_creation(self, limit: int, after: tuple[Any, ...] | None) -> Select[Any]:
        at, no = processes.c.created_at.label("at"), processes.c.process_no.label("no")
        return self._in_order(*self._found, at, no, after=after, limit=limit + 1)

    def _overdue(self, limit: int, after: tuple[Any, ...] | None) -> Select[Any]:
        """Select overdue timers, earliest first, by the index of claims; at most a page per namespace."""
        wanted = self._conditions()
        key = (_DUE.c.namespace_no, _DUE.c.scheduled_time, _DUE.c.task_id)
        wanted += self._behind(after, key)
        one = (
            select(*self._found, _DUE.c.scheduled_time.label("at"), _DUE.c.task_id.label("no"))
            .join_from(_DUE, processes, processes.c.process_no == _DUE.c.process_no)
            .where(
                _DUE.c.namespace_no == namespaces.c.namespace_no,
                text("due.claimable AND due.task_type IN ('timeout', 'remove')"),
                _DUE.c.scheduled_time <= func.now(),
                *wanted,
            )
            .correlate(namespaces)
            .order_by(_DUE.c.scheduled_time, _DUE.c.task_id)
            .limit(limit + 1)
            .lateral("one")
        )
        found = select(one).select_from(namespaces.join(one, true())).where(*self._wanted_namespaces(after))
        return found.order_by(one.c.namespace_no, one.c.at, one.c.no).limit(limit + 1)

    def _by_timers(self, limit: int, after: tuple[Any, ...] | None) -> Select[Any]:
        """Select, of the next MOST_LOOKED_AT processes, those that have the timer, and where it ended.

        No index finds a timer by its name, or what is missing.
        """
        looked = self._in_order(*_BY_CREATION, after=after, limit=MOST_LOOKED_AT).cte("looked")
        key = (looked.c.namespace_no, looked.c.created_at, looked.c.process_no)
        end = (
            select(
                looked.c.namespace_no.label("end_namespace_no"),
                looked.c.created_at.label("end_at"),
                looked.c.process_no.label("end_no"),
                select(func.count()).select_from(looked).scalar_subquery().label("looked_at"),
            )
            .order_by(*(column.desc() for column in key))
            .limit(1)
            .subquery("end_of_it")
        )
        # The limit is a fence: only processes of the page are looked up.
        hits = (
            select(looked).where(self._has_timer(looked)).order_by(*key).limit(limit + 1).subquery("hits")
        )
        at, no = hits.c.created_at.label("at"), hits.c.process_no.label("no")
        found = select(*self._found, at, no).join_from(
            hits, processes, processes.c.process_no == hits.c.process_no
        )
        page = self._with_room(found)
        return (
            select(end, page, _name_of(page))
            .select_from(end.outerjoin(page, true()))
            .order_by(page.c.namespace_no, page.c.at, page.c.no)
        )


def number_of(namespace: str | BindParameter[str]) -> ScalarSelect[int]:
    """Select the number of a namespace, by its name."""
    return select(namespaces.c.namespace_no).where(namespaces.c.name == namespace).scalar_subquery()


def _name_of(found: FromClause) -> ColumnElement[str]:
    return (
        select(namespaces.c.name)
        .where(namespaces.c.namespace_no == found.c.namespace_no)
        .correlate(found)
        .scalar_subquery()
        .label("namespace")
    )
