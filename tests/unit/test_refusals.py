"""What errors of PostgreSQL mean: the table, read as operations read it."""

from __future__ import annotations

import os

import psycopg
import pytest
from psycopg import errors

from progressor.cli.failures import report
from progressor.errors import InvalidRequest, ProgressorError, SchemaMismatch, StorageUnavailable
from progressor.storage.postgres import sqlstates
from progressor.storage.postgres.sqlstates import TABLE, ErrorClass


def error(state: str, *, severity: str = "ERROR", **fields: str) -> psycopg.Error:
    """As PostgreSQL sends it."""
    told = {"severity_nonlocalized": severity, "sqlstate": state, "message_primary": "no", **fields}
    info = {psycopg.pq.DiagnosticField[name.upper()]: text.encode() for name, text in told.items()}
    try:
        kind: type[psycopg.Error] = errors.lookup(state)
    except KeyError:
        # One that psycopg does not know yet, as of a server that is newer.
        kind = psycopg.OperationalError
    return kind("no", info=info)  # type: ignore[arg-type]


CASES = {
    # Repeated, in the same session.
    "40001": (ErrorClass.CONFLICT, False),
    "40P01": (ErrorClass.CONFLICT, False),
    "53100": (ErrorClass.PASSING, False),
    "53300": (ErrorClass.PASSING, False),
    "55P03": (ErrorClass.PASSING, False),
    "57014": (ErrorClass.PASSING, False),
    "XX000": (ErrorClass.PASSING, False),
    # Repeated, in another one.
    "08006": (ErrorClass.PASSING, True),
    "0A000": (ErrorClass.PASSING, True),
    "25006": (ErrorClass.PASSING, True),
    "25P02": (ErrorClass.PASSING, True),
    "26000": (ErrorClass.PASSING, True),
    "42P05": (ErrorClass.PASSING, True),
    "57P01": (ErrorClass.PASSING, True),
    "57P03": (ErrorClass.PASSING, True),
    # For an operator.
    "42501": (ErrorClass.WITHHELD, False),
    "3F000": (ErrorClass.MISSING, False),
    "42P01": (ErrorClass.MISSING, False),
    "42703": (ErrorClass.MISSING, False),
    # Final.
    "22003": (ErrorClass.VALUE, False),
    "22P03": (ErrorClass.VALUE, False),
    "23514": (ErrorClass.VALUE, False),
    "54000": (ErrorClass.VALUE, False),
    "08P01": (ErrorClass.DEFECT, False),
    "42601": (ErrorClass.DEFECT, False),
    "42804": (ErrorClass.DEFECT, False),
    "42999": (ErrorClass.DEFECT, False),
}


@pytest.mark.parametrize("state", CASES)
def test_an_error_of_a_statement(state: str) -> None:
    """It is judged by the longest line that its SQLSTATE begins with, and it is definite."""
    line = sqlstates.judged(error(state))
    assert (line.meaning, line.ends_sessions) == CASES[state]
    assert sqlstates.is_definite(error(state))


@pytest.mark.parametrize("state", CASES)
def test_an_error_that_ends_the_connection(state: str) -> None:
    """It may pass whatever it says, a pooler's own above all; what became of the transaction is open."""
    fatal = error(state, severity="FATAL")
    line = sqlstates.judged(fatal)
    assert (line.meaning, line.ends_sessions) == (ErrorClass.PASSING, True)
    assert not sqlstates.is_definite(fatal)


def test_an_error_without_a_state() -> None:
    """A connection that cannot be made, or is gone."""
    lost = psycopg.OperationalError("connection failed:\n\tConnection refused")
    assert sqlstates.judged(lost).meaning is ErrorClass.PASSING
    assert not sqlstates.is_definite(lost)
    told = sqlstates.translated(lost, role=None, needs="")
    assert str(told) == "PostgreSQL cannot be reached: connection failed: Connection refused"


def test_a_value_that_cannot_be_sent() -> None:
    """psycopg refuses some by itself."""
    assert sqlstates.judged(psycopg.DataError("NUL")).meaning is ErrorClass.VALUE


@pytest.mark.parametrize("name", ["tasks_idempotency_key", "removed_processes_pkey"])
def test_a_race_for_one_key(name: str) -> None:
    """Who comes later finds, at his second try, what the earlier one made; other constraints are rules."""
    assert sqlstates.judged(error("23505", constraint_name=name)).meaning is ErrorClass.CONFLICT
    assert sqlstates.judged(error("23505", constraint_name="another")).meaning is ErrorClass.VALUE


def test_every_line_is_reached() -> None:
    """No line stands in the shadow of another, and each has its error."""
    assert len({line.state for line in TABLE}) == len(TABLE)
    reached = {sqlstates.judged(error(line.state.ljust(5, "0"))) for line in TABLE}
    assert reached == set(TABLE)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("40001", StorageUnavailable),
        ("42501", StorageUnavailable),
        ("42P01", SchemaMismatch),
        ("22003", InvalidRequest),
        ("08P01", InvalidRequest),
    ],
)
def test_in_words(state: str, kind: type[ProgressorError]) -> None:
    """The text has PostgreSQL's first line, and none of its details, which hold values."""
    told = sqlstates.translated(
        error(state, message_detail="Key (id)=(secret)", context="SELECT secret"),
        role="app",
        needs="SELECT",
    )
    assert type(told) is kind
    assert "no" in str(told)
    assert "secret" not in str(told)
    assert ("app" in str(told)) == (state == "42501")
    assert getattr(told, "is_denied", False) == (state == "42501")
    # What a command ends with: EX_NOPERM is no "not now".
    assert (report(told, machine=True) == os.EX_NOPERM) == (state == "42501")
