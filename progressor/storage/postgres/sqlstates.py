"""The meanings of PostgreSQL's errors: one table, by which operations, reads and migrations decide.

Rule: the SQLSTATE decides, never the text. An error that is not in the table is a defect, and is raised.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import psycopg

from progressor.errors import InvalidRequest, ProgressorError, SchemaMismatch, StorageUnavailable

# The privileges of a role: to run, to look, to migrate.
TO_RUN = "USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables, USAGE on its sequences"
TO_LOOK = "USAGE on the schema and SELECT on its tables"
TO_MIGRATE = "the schema and all in it as their owner, or CREATE on the database to make it"


class ErrorClass(StrEnum):
    """The class of an error: what happens to the operation, and who is at fault."""

    PASSING = "repeated"
    """Nobody's fault: it works later, or on another server."""
    CONFLICT = "repeated; no outage"
    """Nobody's fault: others worked at the same time. The server is well."""
    WITHHELD = "`StorageUnavailable`"
    """The operator's fault: the role lacks a privilege.

    What a worker holds is repeated until it is granted.
    """
    MISSING = "`SchemaMismatch`"
    """The operator's fault: a table or a column is missing.

    What a worker holds is repeated until it is there.
    """
    VALUE = "`InvalidRequest`"
    """The request's fault: PostgreSQL will never take such a value."""
    DEFECT = "`InvalidRequest`: a defect"
    """The engine's fault: a statement that no repetition makes right."""

    @property
    def is_for_an_operator(self) -> bool:
        """Return whether an operator has to grant or create something before a repetition can succeed."""
        return self in (ErrorClass.WITHHELD, ErrorClass.MISSING)

    @property
    def is_final(self) -> bool:
        """Return whether the error is raised at once, rather than the operation repeated."""
        return self not in (ErrorClass.PASSING, ErrorClass.CONFLICT)


class ErrorRule(NamedTuple):
    """A line of the table: an SQLSTATE or the class that it begins with."""

    state: str
    what: str
    meaning: ErrorClass
    ends_sessions: bool = False
    """True if this session and all idle ones are dropped: they lead to the same server, or are wrong
    about their own state, such as prepared statements."""
    of_one_item: bool = False
    """True if the server is well, and perhaps refuses the batch because of one item."""
    is_damage: bool = False
    """True if perhaps a row that is there cannot be read."""
    is_blocked: bool = False
    """True if a lock was waited for, as long as a session may: a second wait would tell no more."""


TABLE = (
    ErrorRule("08", "the connection", ErrorClass.PASSING, ends_sessions=True),
    # Errors of a pooler have it too, but end the connection.
    ErrorRule("08P01", "a message that the server does not understand", ErrorClass.DEFECT),
    # "Cannot be read-write during recovery", and plans that a migration has made stale.
    ErrorRule("0A", "a standby, or a plan from before a migration", ErrorClass.PASSING, ends_sessions=True),
    ErrorRule("22", "a value that is none of its type", ErrorClass.VALUE),
    ErrorRule("23", "a constraint", ErrorClass.VALUE),
    ErrorRule(
        "25", "a read-only server, the state of a transaction", ErrorClass.PASSING, ends_sessions=True
    ),
    ErrorRule("26", "a prepared statement that is not there", ErrorClass.PASSING, ends_sessions=True),
    ErrorRule("3F", "the schema is not there", ErrorClass.MISSING),
    ErrorRule("40", "a deadlock, or a serialization failure", ErrorClass.CONFLICT),
    ErrorRule(
        "42P05", "a prepared statement that somebody else made", ErrorClass.PASSING, ends_sessions=True
    ),
    ErrorRule("42501", "a missing privilege", ErrorClass.WITHHELD),
    ErrorRule("42P01", "a table is not there", ErrorClass.MISSING),
    ErrorRule("42703", "a column is not there", ErrorClass.MISSING),
    ErrorRule("42704", "a type is not there", ErrorClass.MISSING),
    ErrorRule("53", "too many connections, a full disk, no memory", ErrorClass.PASSING, of_one_item=True),
    ErrorRule("54", "a limit of PostgreSQL", ErrorClass.VALUE),
    ErrorRule(
        "55", "a lock that was waited for too long", ErrorClass.PASSING, of_one_item=True, is_blocked=True
    ),
    ErrorRule(
        "57", "a statement that took too long, or was cancelled", ErrorClass.PASSING, of_one_item=True
    ),
    ErrorRule("57P", "the server goes down or comes up", ErrorClass.PASSING, ends_sessions=True),
    ErrorRule("58", "the server's operating system", ErrorClass.PASSING, of_one_item=True, is_damage=True),
    ErrorRule("72", "an old snapshot", ErrorClass.PASSING),
    ErrorRule("XX", "inside of PostgreSQL", ErrorClass.PASSING, of_one_item=True, is_damage=True),
)
_RULES = {rule.state: rule for rule in TABLE}
_LOST = ErrorRule("", "the connection was lost", ErrorClass.PASSING, ends_sessions=True)
_VALUE = ErrorRule("", "a value that cannot be sent", ErrorClass.VALUE)
_UNKNOWN = ErrorRule("", "anything else", ErrorClass.DEFECT)

# Constraints that two requests with one key race for: repeated, the later one finds the earlier one's task,
# in this life of the process or in one that has just ended.
_RACES = ("tasks_idempotency_key", "removed_processes_pkey")


class BatchRefused(Exception):
    """Raised when PostgreSQL refused a batch, perhaps because of one item: try each item alone.

    For an item that is tried alone already it means damage: a row of it cannot be read.
    """


class Blocked(BatchRefused):
    """Raised when a lock was waited for in vain; for an item that is tried alone, too."""


def judged(error: psycopg.Error) -> ErrorRule:
    """Return the rule for an error: that of the longest prefix of its SQLSTATE."""
    state = error.sqlstate
    if state is None:
        return _of_the_client(error)
    if not is_definite(error):
        return _LOST
    if error.diag.constraint_name in _RACES:
        return _RULES["40"]
    return next((_RULES[state[:n]] for n in (5, 3, 2) if state[:n] in _RULES), _UNKNOWN)


def is_definite(error: psycopg.Error) -> bool:
    """Return whether PostgreSQL refused the transaction.

    If not, the connection was lost, and the transaction may have been committed.
    """
    # Some poolers send only the second of the two fields.
    severity = error.diag.severity_nonlocalized or error.diag.severity
    return error.sqlstate is not None and severity == "ERROR"


class Unreadable(InvalidRequest):
    """Raised when PostgreSQL committed and returned an unreadable value, which the engine never wrote."""

    def __init__(self, statement: str, error: Exception) -> None:
        super().__init__(
            f"a value in the tables cannot be read ({statement}: {type(error).__name__}): "
            "look with psql for what was written there by hand"
        )


def _of_the_client(error: psycopg.Error) -> ErrorRule:
    match error:
        case psycopg.DataError():
            return _VALUE
        case psycopg.ProgrammingError() | psycopg.NotSupportedError():
            return _UNKNOWN
        case _:
            return _LOST


def refused(error: psycopg.Error) -> InvalidRequest:
    """Return the error of a result that PostgreSQL will never take, without SQL and values."""
    says = " ".join((error.diag.message_primary or str(error)).split())
    return InvalidRequest(f"PostgreSQL refused it: {says} ({error.sqlstate})")


def translated(error: psycopg.Error, *, role: str | None, needs: str) -> ProgressorError:
    """Return the error of this API for one of PostgreSQL; without SQL and values, which may be secret."""
    says = " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__
    rule = judged(error)
    match rule.meaning:
        case ErrorClass.PASSING | ErrorClass.CONFLICT:
            fails = "cannot be reached" if rule is _LOST else "cannot do it now"
            return StorageUnavailable(f"PostgreSQL {fails}: {says}")
        case ErrorClass.WITHHELD:
            denied = StorageUnavailable(f"{says}: grant the role {role or 'of this connection'} {needs}")
            denied.is_denied = True
            return denied
        case ErrorClass.MISSING:
            return SchemaMismatch(f"{says}: run `progressor migrate`")
        case ErrorClass.VALUE:
            return InvalidRequest(f"PostgreSQL refused a value: {says}")
        case ErrorClass.DEFECT:
            return InvalidRequest(f"PostgreSQL refused a statement: {says} ({error.sqlstate})")
