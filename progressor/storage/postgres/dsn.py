"""Connection strings, in the spellings of psycopg (URL or key=value) and SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
        parts = dict(conninfo_to_dict(_DRIVER.sub(r"\1", dsn)))
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        raise InvalidRequest(
            "the database URL is not one that PostgreSQL understands: "
            "write it like postgresql://user:password@host:5432/database",
            field=field,
        ) from None
    if "://" in dsn and _is_cut_wrongly(parts):
        # A part of the password stands in them: no error may tell them.
        raise InvalidRequest(
            "the database URL has an @ or a / in its user or password: percent-encode them, as %40 and %2F",
            field=field,
        )
    return parts


def _is_cut_wrongly(parts: Mapping[str, Any]) -> bool:
    host, port = str(parts.get("host", "")), str(parts.get("port", ""))
    # An @ in front of a host is that of an abstract socket. There may be several ports.
    is_port = port.replace(",", "").isdecimal() or not port.strip(",")
    return "@" in host[1:] or "@" in str(parts.get("dbname", "")) or not is_port
