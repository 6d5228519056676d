"""The service's own table, in the database of its processes: what the bookkeeper pays out."""

import psycopg

_TABLE = """
    CREATE TABLE IF NOT EXISTS parcel_payouts (
        claim text PRIMARY KEY,
        shop text NOT NULL,
        cents integer NOT NULL CHECK (cents >= 0),
        decided_by text NOT NULL,
        decided_at timestamptz NOT NULL
    )
"""


def create(dsn: str) -> None:
    """Create the table unless it exists; a real service has migrations of its own."""
    with psycopg.connect(dsn) as connection:
        connection.execute(_TABLE)
