"""Damage done to the target between its import and the comparison, one row of each table.

Rule: a comparison that finds none of it compares nothing.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg

_DAMAGE: dict[str, LiteralString] = {
    "processes": """
        UPDATE progressor.processes SET aux_state = aux_state || ' '
        WHERE process_id = 'acme-0000001'
    """,
    "tasks": """
        UPDATE progressor.tasks SET response = '99'
        WHERE idempotency_key = 'pay 0' AND process_no = (
            SELECT process_no FROM progressor.processes WHERE process_id = 'acme-0000002'
        )
    """,
    "events": """
        DELETE FROM progressor.events
        WHERE event_id = 1 AND process_no = (
            SELECT process_no FROM progressor.processes WHERE process_id = 'acme-0000003'
        )
    """,
    "schedule": """
        UPDATE progressor.schedule SET scheduled_time = scheduled_time + interval '1 ms'
        WHERE process_no = (SELECT process_no FROM progressor.processes WHERE process_id = 'acme-0000004')
    """,
    "outbox": """
        UPDATE progressor.outbox SET args = args || ' '
        WHERE process_no = (SELECT min(process_no) FROM progressor.outbox)
    """,
}


def damage(dsn: str) -> None:
    """Do all of it."""
    with psycopg.connect(dsn) as connection:
        for table, statement in _DAMAGE.items():
            if connection.execute(statement).rowcount != 1:
                raise RuntimeError(f"nothing to damage in {table}")
