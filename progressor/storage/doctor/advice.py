"""Advice on findings of the doctor: what an operator does about an invariant that does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_LATE = (
    "No zombie collector runs, or it cannot keep up: start one with `progressor zombie-collector`, or a "
    "worker, which has one inside. Nothing is lost."
)
_DELETED = (
    "Tasks were deleted that nothing may delete. Restore them from a backup, or treat their answers as "
    "lost; keep what is found here, and report it."
)
_COPIED = (
    "Rows were copied without their sequences, as logical replication does. Stop whatever writes, and run "
    "`progressor migrate --sequences`."
)
_OTHER = (
    "A defect of the engine, damage of the storage, or somebody wrote into the tables by hand. Keep what "
    "is found here and a dump of the rows of the process, and report it."
)
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "running_of_the_living": _LATE,
        "running_in_time": _LATE,
        "schema_guards": (
            "The tables are not those of this release. Make what is missing as `progressor migrate --sql` "
            "does, and find out who changed it."
        ),
        "sequences_lead": _COPIED,
        "numbers_were_given": _COPIED,
        "archived_walks_begin": (
            "What its retention deletes is to be archived first, and no zombie collector has one, or "
            "none runs: set PROGRESSOR_ARCHIVE where they run. Until then everything is kept."
        ),
        "init_succeeded": (
            "The process has no state, or the task of its init was deleted. Remove it and start it again, "
            "or restore the task from a backup."
        ),
        "retention_readable": (
            "Somebody wrote it by hand. Where it cannot be read, everything of the namespace is kept: "
            "`progressor retention show` tells. Set the times with `progressor retention set`, or start a "
            "worker anew, which writes what its code says."
        ),
        "swept_is_old": _DELETED,
        "bulk_repairs_have_tasks": _DELETED,
    }
)
"""The advice by the name of the invariant, where it is of a kind of its own."""


def advice_on(name: str) -> str:
    """Return what to do if the invariant of this name does not hold."""
    return ADVICE.get(name, _OTHER)
