"""Connection strings, in the spellings of psycopg (URL or key=value) and SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

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
    """Return the DSN as a URL, with another database, and if given another host or port."""
    values = {**parsed(dsn), **changes, "dbname": name}
    parts = {key: quote(str(value), safe="") for key, value in values.items()}
    database, secret = parts.pop("dbname"), ":" + parts.pop("password", "")
    user = parts.pop("user", "") + (secret if len(secret) > 1 else "")
    more = "&".join(f"{key}={value}" for key, value in parts.items())
    return f"postgresql://{user and user + '@'}/{database}?{more}"


def parsed(dsn: str, *, field: str = "dsn") -> dict[str, Any]:
    """Return the parts of a DSN; InvalidRequest, without the DSN and its password, if it is none."""
    try:
        parts = dict(conninfo_to_dict(_DRIVER.sub(r"\1", dsn)))
    except (psycopg.ProgrammingError, UnicodeError):
        raise InvalidRequest(
            "the database URL is not one that PostgreSQL understands: "
            "write it like postgresql://user:password@host:5432/database",
            field=field,
        ) from None
    if "://" in dsn:
        _check_parts(parts, field)
    return parts


def _check_parts(parts: Mapping[str, Any], field: str) -> None:
    """Raise InvalidRequest if a URL was cut within its password: no error may tell these parts."""
    host, port = str(parts.get("host", "")), str(parts.get("port", ""))
    encode = "percent-encode them, as %40 and %2F"
    # An @ in front of a host is that of an abstract socket.
    if "@" in host[1:] or "@" in str(parts.get("dbname", "")):
        raise InvalidRequest(
            f"the database URL has an @ or a / in its user or password: {encode}", field=field
        )
    # There may be several.
    if not port.replace(",", "").isdecimal() and port.strip(","):
        raise InvalidRequest(
            "the port of the database URL must be a number. "
            f"If the URL has an @ or a / in its user or password, {encode}",
            field=field,
        )
