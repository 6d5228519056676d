"""Storage parameters of tables (`postgresql_with`) on SQLAlchemy 2.0, which knows those of indexes alone.

Rule: this adds what 2.1 does, and changes no table that has no such parameters. An application that shares
the process, with tables and compilers of its own, notices nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import MetaData, Table
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler
from sqlalchemy.exc import ArgumentError


def _accepted() -> bool:
    try:
        Table("probe", MetaData(), postgresql_with={"fillfactor": "50"})
    except ArgumentError:
        return False
    return True


def backport() -> None:
    """Let `Table` take `postgresql_with`; nothing to do from SQLAlchemy 2.1 on."""
    if _accepted():
        return
    without: Callable[[PGDDLCompiler, Table], str] = PGDDLCompiler.post_create_table

    def post_create_table(self: PGDDLCompiler, table: Table) -> str:
        parameters = table.dialect_options["postgresql"]["with"] or {}
        listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
        # INHERITS, PARTITION BY and USING would have to come first: no table that has parameters has those.
        return (f"\n WITH ({listed})" if listed else "") + without(self, table)

    Table.argument_for("postgresql", "with", None)
    PGDDLCompiler.post_create_table = post_create_table  # type: ignore[method-assign]  # a backport
