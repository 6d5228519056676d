"""The doctor: it checks the promises of the engine about its tables, and changes nothing.

Rule: one snapshot, read-only. A finding is a defect of the engine, of the storage below it, or of a hand
that wrote into the tables; never something that a busy system passes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from progressor.config import DEFAULT_SCHEMA
from progressor.inputs import check_count, check_namespace
from progressor.storage.doctor import checks
from progressor.storage.doctor.advice import advice_on
from progressor.storage.doctor.checks import Finding, Invariant
from progressor.storage.postgres.dsn import with_defaults

__all__ = ["Finding", "Invariant", "Report", "advice_on", "examine"]

_MOST = 10


@dataclass(frozen=True, slots=True)
class Report:
    """The invariants that were examined; `left`: those for which the time was too short."""

    invariants: tuple[Invariant, ...]
    left: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Return whether all of them hold, and none is left."""
        return not self.left and all(invariant.holds for invariant in self.invariants)


def examine(
    dsn: str,
    *,
    namespace: str | None = None,
    quick: bool = False,
    most: int = _MOST,
    lease_age: timedelta = timedelta(seconds=15),
    grace: timedelta = timedelta(seconds=10),
    slack: timedelta = timedelta(seconds=15),
    within: timedelta | None = None,
    schema: str = DEFAULT_SCHEMA,
    now: datetime | None = None,
) -> Report:
    """Examine a database, or one namespace of it; return at most `most` findings of each invariant.

    `quick` leaves out what reads all tasks, events or processes. A task of a dead worker is a finding when
    it is older than `lease_age` and `slack`, one that runs too long when it outlived its step_timeout,
    `grace` and `slack`: `slack` is what a zombie collector needs. `within` ends the examination, whatever
    is left. Raises StorageUnavailable, SchemaMismatch, and NamespaceNotFound.
    """
    if namespace is not None:
        check_namespace(namespace)
    check_count("most", most, least=1)
    params = {
        "namespace": namespace,
        "lease_age": lease_age,
        "grace": grace,
        "slack": slack,
        "now": now,
    }
    wanted = [check for check in checks.CHECKS if check.is_quick or not quick]
    running = checks.run(with_defaults(dsn), wanted, params, most=most, within=within, schema=schema)
    found = tuple(running)
    return Report(found, tuple(check.name for check in wanted[len(found) :]))
