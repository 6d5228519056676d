"""What an error of PostgreSQL means: one table, by which operations, reads and migrations decide.

Rule: decided by SQLSTATE, never by text. What is not in the table is a defect: it is final, and told.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import psycopg

from progressor.errors import InvalidRequest, ProgressorError, SchemaMismatch, StorageUnavailable

# What a role must have: to run, to look, to migrate.
TO_RUN = "USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables, USAGE on its sequences"
TO_LOOK = "USAGE on the schema and SELECT on its tables"
TO_MIGRATE = "the schema and all in it as their owner, or CREATE on the database to make it"


class Meaning(StrEnum):
    """What becomes of the operation, and whose the error is."""

    PASSING = "repeated"
    """Nobody's: another moment, or another server, takes it."""
    CONFLICT = "repeated; no outage"
    """Nobody's: others worked at the same time. The server is well."""
    WITHHELD = "`StorageUnavailable`"
    """The operator's: the role lacks a privilege. What a worker holds is repeated until it is given."""
    MISSING = "`SchemaMismatch`"
    """The operator's: a table or a column is not there. What a worker holds is repeated likewise."""
    VALUE = "`InvalidRequest`"
    """The request's: PostgreSQL will never take such a value."""
    DEFECT = "`InvalidRequest`: a defect"
    """Ours: a statement that no repetition makes right."""

    @property
    def is_for_an_operator(self) -> bool:
        """Whether somebody has to give or make something before it is repeated in vain no more."""
        return self in (Meaning.WITHHELD, Meaning.MISSING)

    @property
    def is_final(self) -> bool:
        """Whether the caller is told, rather than asked for patience."""
        return self not in (Meaning.PASSING, Meaning.CONFLICT)


class Line(NamedTuple):
    """A line of the table: an SQLSTATE or the class that it begins with."""

    state: str
    what: str
    meaning: Meaning
    ends_sessions: bool = False
    """Whether this session and all idle ones are dropped: they lead to the same server, or believe of
    themselves what is not so."""
    of_one_item: bool = False
    """Whether the server is well, and says no perhaps for the sake of one item of a batch."""
    is_damage: bool = False
    """Whether it says, perhaps, that a row which is there cannot be read."""


TABLE = (
    Line("08", "the connection", Meaning.PASSING, ends_sessions=True),
    # A pooler's own errors have it too, but those end the connection.
    Line("08P01", "a message that the server does not understand", Meaning.DEFECT),
    # "Cannot be read-write during recovery", and plans that a migration has made stale.
    Line("0A", "a standby, or a plan from before a migration", Meaning.PASSING, ends_sessions=True),
    Line("22", "a value that is none of its type", Meaning.VALUE),
    Line("23", "a constraint", Meaning.VALUE),
    Line("25", "a read-only server, the state of a transaction", Meaning.PASSING, ends_sessions=True),
    Line("26", "a prepared statement that is not there", Meaning.PASSING, ends_sessions=True),
    Line("3F", "the schema is not there", Meaning.MISSING),
    Line("40", "a deadlock, or a serialization failure", Meaning.CONFLICT),
    Line("42P05", "a prepared statement that somebody else made", Meaning.PASSING, ends_sessions=True),
    Line("42501", "a missing privilege", Meaning.WITHHELD),
    Line("42P01", "a table is not there", Meaning.MISSING),
    Line("42703", "a column is not there", Meaning.MISSING),
    Line("42704", "a type is not there", Meaning.MISSING),
    Line("53", "too many connections, a full disk, no memory", Meaning.PASSING, of_one_item=True),
    Line("54", "a limit of PostgreSQL", Meaning.VALUE),
    Line("55", "a lock that was waited for too long", Meaning.PASSING, of_one_item=True),
    Line("57", "a statement that took too long, or was cancelled", Meaning.PASSING, of_one_item=True),
    Line("57P", "the server goes down or comes up", Meaning.PASSING, ends_sessions=True),
    Line("58", "the server's operating system", Meaning.PASSING, of_one_item=True, is_damage=True),
    Line("72", "an old snapshot", Meaning.PASSING),
    Line("XX", "inside of PostgreSQL", Meaning.PASSING, of_one_item=True, is_damage=True),
)
_LINES = {line.state: line for line in TABLE}
_LOST = Line("", "the connection was lost", Meaning.PASSING, ends_sessions=True)
_VALUE = Line("", "a value that cannot be sent", Meaning.VALUE)
_UNKNOWN = Line("", "anything else", Meaning.DEFECT)

# The races of two requests with one key: repeated, the later one finds the earlier one's task, be it of
# this life of the process or of one that has just ended.
_RACES = ("tasks_idempotency_key", "removed_processes_pkey")


class BatchRefused(Exception):
    """PostgreSQL refused a batch twice, perhaps for the sake of one item: each is to be tried alone.

    Or it refused what is alone already twice, for damage: this one cannot be read.
    """


def judged(error: psycopg.Error) -> Line:
    """The line of the table that an error falls under: the longest that its SQLSTATE begins with."""
    state = error.sqlstate
    if state is None:
        return _of_the_client(error)
    if not is_definite(error):
        return _LOST
    if error.diag.constraint_name in _RACES:
        return _LINES["40"]
    return next((_LINES[state[:n]] for n in (5, 3, 2) if state[:n] in _LINES), _UNKNOWN)


def is_definite(error: psycopg.Error) -> bool:
    """Whether PostgreSQL refused the transaction. If not, the line was lost, and it may have happened."""
    # Some poolers send only the other field of the two.
    severity = error.diag.severity_nonlocalized or error.diag.severity
    return error.sqlstate is not None and severity == "ERROR"


class Unreadable(InvalidRequest):
    """PostgreSQL committed, and a value of its answer cannot be read: nobody of ours wrote it."""

    def __init__(self, statement: str, error: Exception) -> None:
        super().__init__(
            f"a value in the tables cannot be read ({statement}: {type(error).__name__}): "
            "look with psql for what was written there by hand"
        )


def _of_the_client(error: psycopg.Error) -> Line:
    match error:
        case psycopg.DataError():
            return _VALUE
        case psycopg.ProgrammingError() | psycopg.NotSupportedError():
            return _UNKNOWN
        case _:
            return _LOST


def translated(error: psycopg.Error, *, role: str | None, needs: str) -> ProgressorError:
    """The error in the words of this API; without SQL, and without values, which may be secret."""
    says = " ".join((error.diag.message_primary or str(error)).split()) or type(error).__name__
    line = judged(error)
    match line.meaning:
        case Meaning.PASSING | Meaning.CONFLICT:
            fails = "cannot be reached" if line is _LOST else "cannot do it now"
            return StorageUnavailable(f"PostgreSQL {fails}: {says}")
        case Meaning.WITHHELD:
            denied = StorageUnavailable(f"{says}: grant the role {role or 'of this connection'} {needs}")
            denied.is_denied = True
            return denied
        case Meaning.MISSING:
            return SchemaMismatch(f"{says}: run `progressor migrate`")
        case Meaning.VALUE:
            return InvalidRequest(f"PostgreSQL refused a value: {says}")
        case Meaning.DEFECT:
            return InvalidRequest(f"PostgreSQL refused a statement: {says} ({error.sqlstate})")
