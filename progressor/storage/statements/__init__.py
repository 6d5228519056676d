"""The hot statements, one file each, as whole SQL.

`STATEMENTS["save_result"]` is the text of `save_result.sql`; parameters are named, arrays travel as the
types of `storage.arrays`.
"""

from __future__ import annotations

from importlib.resources import files

STATEMENTS: dict[str, str] = {
    path.name.removesuffix(".sql"): path.read_text(encoding="utf-8")
    for path in files(__package__).iterdir()
    if path.name.endswith(".sql")
}
