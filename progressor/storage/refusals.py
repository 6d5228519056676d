"""What refusals of PostgreSQL mean: what may pass, what may be one item's, and what users hear of them."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from progressor.errors import InvalidRequest, SchemaMismatch, StorageUnavailable

# PostgreSQL says no to these whenever they are repeated; everything else may pass.
_FINAL = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
    pg.ProgramLimitExceeded,
)
# The races of two requests with one key: repeated, the later one finds the earlier one's task, be it of
# this life of the process or of one that has just ended.
_RACES = ("tasks_idempotency_key", "removed_processes_pkey")


def is_transient(error: psycopg.Error) -> bool:
    """Whether it may pass if the operation is repeated."""
    if isinstance(error, pg.UniqueViolation):
        return error.diag.constraint_name in _RACES
    return not isinstance(error, _FINAL)


def is_conflict(error: psycopg.Error) -> bool:
    """Whether it speaks of others who work at the same time, not of a server that cannot be had."""
    return isinstance(error, pg.SerializationFailure | pg.DeadlockDetected | pg.UniqueViolation)


class BatchRefused(Exception):
    """PostgreSQL refused a batch twice, perhaps for the sake of one item: each is to be tried alone."""


# The server is well and says no for now: out of memory or disk, a lock or a statement that took too long,
# a row that it cannot read. It may be for one item's sake.
_OF_ONE_ITEM = ("53", "55P03", "57014", "58", "XX")


def is_of_one_item(error: psycopg.Error) -> bool:
    """Whether one item of a batch may be what is refused."""
    return error.sqlstate is not None and error.sqlstate.startswith(_OF_ONE_ITEM)


def translated(error: psycopg.Error) -> Exception:
    """A refusal of PostgreSQL in the words of this API; without the values, which may be secret."""
    says = error.diag.message_primary or type(error).__name__
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.UndefinedObject):
        return SchemaMismatch(f"{says}: run `progressor migrate`")
    if isinstance(error, psycopg.ProgrammingError):
        return StorageUnavailable(f"PostgreSQL refused a statement: {says}")
    return InvalidRequest(f"PostgreSQL refused a value: {says}")
