"""Connection strings, in the spellings of psycopg (URL or key=value) and SQLAlchemy."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor.errors import InvalidRequest

# No dead server may block us: connecting is bounded, and keepalives end a silent connection.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# The driver, as SQLAlchemy names it in a URL.
_DRIVER = re.compile(r"^(postgres(?:ql)?)\+\w+(?=://)")


def with_defaults(dsn: str, *, field: str = "dsn") -> str:
    """Return the DSN as key=value, with bounds on waiting for a dead server unless it states its own."""
    return make_conninfo("", **{**_DEFAULTS, **parsed(dsn, field=field)})


def with_database(dsn: str, name: str, **changes: str) -> str:
    """Return the DSN as key=value, with another database, and if given another host or port."""
    return make_conninfo("", **{**parsed(dsn), **changes, "dbname": name})


def parsed(dsn: str, *, field: str = "dsn") -> dict[str, Any]:
    """Return the parts of a DSN; InvalidRequest, without the DSN and its password, if it is none."""
    try:
        return dict(conninfo_to_dict(_DRIVER.sub(r"\1", dsn)))
    except psycopg.ProgrammingError:
        raise InvalidRequest(
            "the database URL is not one that PostgreSQL understands: "
            "write it like postgresql://user:password@host:5432/database",
            field=field,
        ) from None
