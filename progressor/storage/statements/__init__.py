"""The hot statements, one file each, as whole SQL.

`STATEMENTS["save_result"]` is the text of `save_result.sql`; parameters are named, arrays travel as the
types of `storage.arrays`.

Rule: a table is joined by `namespace = ANY (ARRAY[...]) AND process_id = ANY (ARRAY[...])`. It means the
same as `=`, but the planner can neither merge-join it nor carry it over to a third table, so an index is
read by its whole key or not at all. With `=` it prefers to read an index from end to end on any table that
was (almost) empty when last vacuumed: as `running` is every quiet night, and all are in a new database.
For the same reason a condition that is the predicate of a partial index is put in other words where that
index is not meant. tests/storage/test_plans.py holds every statement to it.
"""

from __future__ import annotations

from importlib.resources import files

STATEMENTS: dict[str, str] = {
    path.name.removesuffix(".sql"): path.read_text(encoding="utf-8")
    for path in files(__package__).iterdir()
    if path.name.endswith(".sql")
}
