"""The SQL statements, one file each, with the rules that they keep.

`STATEMENTS["save_result"]` is the text of `steps/save_result.sql`: a folder for each kind of operation, a
name of its own for each file. Parameters are named, arrays travel as the
types of `storage.postgres.arrays`. Every table, type and sequence is named with its schema, `progressor`;
`in_schema` puts another one in its place.

Rules, so that an index is read by its whole key or not at all, whatever the statistics say:

- Behind the lock a row is found by `LATERAL (... WHERE key = item.key OFFSET 0)`: a fence for the planner,
  which then neither joins in another order nor carries the key over to a third table. What was found is
  changed by its place (`ctid`), which nobody else can change while the process is locked.
- A claim locks what it reads, so it joins by `process_no = ANY (ARRAY[...])`: the same as `=`, but nothing
  that the planner could merge-join.

With a plain join it prefers to read an index from end to end on any table that was (almost) empty when last
vacuumed: as `running` is every quiet night, and all are in a new database. tests/storage/test_plans.py
checks every statement for it.

Most of what a statement for a few processes costs is the start of its plan: each node, and each column that
a node hands on. What few items have, such as an expiry or a pause, is read by its place in the array where
it is needed, and no part carries it. A value that is made of a parameter for all parts stands behind
OFFSET 0 too: else the planner makes it again wherever it is used.

A line `-- include NAME` stands for the text of `fragments/NAME.sql`, which statements share. A fragment is
whole by itself: a condition, items of FROM, SET or SELECT, or parts of WITH. `make sql NAME=save_result`
prints a statement as it is sent.

A part that stands between `-- [timers` and `-- timers]` is for steps that touch a timer, and one between
`-- [several` and `-- several]` for processes with several. Where no step of a batch touches one,
`STATEMENTS["fused_save_timeless"]` is sent, which is the same file without these parts; where none is of a
process with several, `STATEMENTS["fused_save_one_timer"]` is: a part that finds nothing to do costs its
start all the same.

A part between `-- [rated` and `-- rated]` is for namespaces with a rate, and one between `-- [unrated` and
`-- unrated]` for all others: `STATEMENTS["search_calls_rated"]` is the same file with the former parts and
without the latter. So `save_result_pausing` and `save_lite_pausing` have the parts marked `pauses`, in
place of those marked `pauseless`: for batches with a step that is followed by a pause.
`save_result_timeless` has the parts marked `timeless`, in place of those marked `timers`: for batches whose
steps leave all timers as they are. Each of these has a variant that feeds, such as `save_result_feeding`,
with the part marked `feeds`: for batches with a step for the feed. What is left out depends on the steps
alone; what the tables may hold is looked for by every variant. `broken_groups_newest` has the parts marked
`newest`, in place of those marked `oldest`; of `browse.sql` there is a variant for each order, such as
`browse_created`, each with the part of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib.resources import files
from importlib.resources.abc import Traversable
from textwrap import indent
from typing import Any

from progressor.config import DEFAULT_SCHEMA

Params = Mapping[str, Any]
"""The parameters of a statement, by their names."""
Row = dict[str, Any]
Transaction = Mapping[str, Params]
"""The statements of a transaction in their order, by the names of their files."""
Results = dict[str, list[Row]]
"""The rows of each statement, by its name."""

REDO = ("lock", "choose_redo", "prepare_call", "copy_request")
"""The statements that run ended requests again, in their order."""

_QUALIFIED = re.compile(rf"\b{DEFAULT_SCHEMA}\.")
_INCLUDE = re.compile(r"^(?P<indent> *)-- include (?P<name>\w+)\n", re.MULTILINE)


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"^ *-- \[{name}\n.*?^ *-- {name}\]\n", re.MULTILINE | re.DOTALL)


_VARIANTS = {"timeless": (_marked("timers"), _marked("several")), "one_timer": (_marked("several"),)}


def _texts(folder: Traversable) -> Iterator[tuple[str, str]]:
    for path in folder.iterdir():
        if path.name.endswith(".sql"):
            yield path.name.removesuffix(".sql"), path.read_text(encoding="utf-8")


def with_fragments(sql: str) -> str:
    """Return the SQL with the text of each fragment in the place of its line."""
    return _INCLUDE.sub(lambda line: indent(with_fragments(FRAGMENTS[line["name"]]), line["indent"]), sql)


_ROOMS = {room.name: dict(_texts(room)) for room in files(__package__).iterdir() if room.is_dir()}
FRAGMENTS = _ROOMS.pop("fragments")
STATEMENTS = {name: with_fragments(sql) for texts in _ROOMS.values() for name, sql in texts.items()}
STATEMENTS |= {
    f"fused_save_{variant}": reduce(lambda sql, part: part.sub("", sql), parts, STATEMENTS["fused_save"])
    for variant, parts in _VARIANTS.items()
}


_LINE = r"^ *-- (?:\[{0}|{0}\])\n"


def _with(name: str, without: str, sql: str) -> str:
    """Return the SQL with the parts of one name as its own, and without those of another."""
    return re.sub(_LINE.format(name), "", _marked(without).sub("", sql), flags=re.MULTILINE)


def feeding(name: str) -> str:
    """Return the name of the variant of a statement that appends its steps to the feed."""
    return f"{name}_feeding"


_BOTH = {name: sql for name, sql in STATEMENTS.items() if "-- [rated\n" in sql}
STATEMENTS |= {name: _with("unrated", "rated", sql) for name, sql in _BOTH.items()}
STATEMENTS |= {f"{name}_rated": _with("rated", "unrated", sql) for name, sql in _BOTH.items()}

_BOTH = {name: sql for name, sql in STATEMENTS.items() if "-- [pauseless\n" in sql}
STATEMENTS |= {name: _with("pauseless", "pauses", sql) for name, sql in _BOTH.items()}
STATEMENTS |= {f"{name}_pausing": _with("pauses", "pauseless", sql) for name, sql in _BOTH.items()}

_BOTH = {name: sql for name, sql in STATEMENTS.items() if "-- [timeless\n" in sql}
STATEMENTS |= {name: _with("timers", "timeless", sql) for name, sql in _BOTH.items()}
# A step before a pause is rare, and saved with all parts.
STATEMENTS["save_result_timeless"] = _with("timeless", "timers", _BOTH["save_result"])

_BOTH = {name: sql for name, sql in STATEMENTS.items() if "-- [feeds\n" in sql}
STATEMENTS |= {name: _marked("feeds").sub("", sql) for name, sql in _BOTH.items()}
STATEMENTS |= {feeding(name): re.sub(_LINE.format("feeds"), "", sql) for name, sql in _BOTH.items()}

_BOTH = {name: sql for name, sql in STATEMENTS.items() if "-- [oldest\n" in sql}
STATEMENTS |= {name: _with("oldest", "newest", sql) for name, sql in _BOTH.items()}
STATEMENTS |= {f"{name}_newest": _with("newest", "oldest", sql) for name, sql in _BOTH.items()}

_ORDERS = ("created", "broken", "due")
_ALL = STATEMENTS.pop("browse")
STATEMENTS |= {
    f"browse_{order}": reduce(
        lambda sql, other: _marked(other).sub("", sql),
        [other for other in _ORDERS if other != order],
        re.sub(_LINE.format(order), "", _ALL, flags=re.MULTILINE),
    )
    for order in _ORDERS
}

SAVES = tuple(name for name in STATEMENTS if name.startswith("save_result"))
"""The variants of the statement that saves steps: one of them is sent in a transaction."""


def in_schema(sql: str, schema: str) -> str:
    """Return the SQL for the tables of another schema, whose name `ConnectionOptions` has checked."""
    return sql if schema == DEFAULT_SCHEMA else _QUALIFIED.sub(f'"{schema}".', sql)


def lock_by_name(count: int) -> str:
    """Return the name of the statement that locks so many processes by their names."""
    return "lock_one_by_name" if count == 1 else "lock_by_name"
