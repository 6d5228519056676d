"""The nouns of acts: their verbs, and entries of the audit.

Rule: an entry has names and numbers of what was changed, never a value: no args, no state, no secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from progressor.errors import InvalidRequest
from progressor.inputs import (
    DRY_RUN,
    FIRE_TIMER,
    SET_TIMER,
    UNSET_TIMER,
    all_names_like,
    check_namespace,
    check_text,
)
from progressor.model import TaskType

MOST_ENTRIES = 1000
"""The most entries of a page."""
_SIMPLE_REPAIR = "simple_repair"


class AuditVerb(StrEnum):
    """The verbs of operators, each of which leaves an entry in the audit."""

    PAUSE = "pause"
    RESUME = "resume"
    RETIRE = "retire"
    SET_GROUP_LIMIT = "set_group_limit"
    SET_RETENTION = "set_retention"
    BEGIN_RETENTION = "begin_retention"
    REENCODE = "reencode"
    PUT = "put"
    IMPORT = "import"
    REMOVE = "remove"
    REPAIR = "repair"
    SIMPLE_REPAIR = "simple_repair"
    REDO = "redo"
    CALL = "call"
    NOTIFY = "notify"
    REPAIR_ALL = "repair_all"
    STOP_BULK = "stop_bulk"
    CREATE_TOKEN = "create_token"  # noqa: S105 - a verb, no secret
    REVOKE_TOKEN = "revoke_token"  # noqa: S105 - likewise
    PAUSE_SCHEDULE = "pause_schedule"
    RESUME_SCHEDULE = "resume_schedule"
    TRIGGER_SCHEDULE = "trigger_schedule"
    BACKFILL_SCHEDULE = "backfill_schedule"
    SET_TIMER = "set_timer"
    UNSET_TIMER = "unset_timer"
    FIRE_TIMER = "fire_timer"
    MOVE_SUBSCRIPTION = "move_subscription"
    REMOVE_SUBSCRIPTION = "remove_subscription"
    PARK_FAILING = "park_failing"
    RETRY_PARKED = "retry_parked"
    SKIP_PARKED = "skip_parked"


# Changes of timers, by the names of the calls that they are.
_OF_TIMERS = {
    SET_TIMER: AuditVerb.SET_TIMER,
    UNSET_TIMER: AuditVerb.UNSET_TIMER,
    FIRE_TIMER: AuditVerb.FIRE_TIMER,
}


# Requests that programs make all the time, which are acts in the console alone.
OF_CALLERS = {TaskType.CALL: AuditVerb.CALL, TaskType.NOTIFY: AuditVerb.NOTIFY}


class Way(StrEnum):
    """The ways in which operators act."""

    CLI = "cli"
    HTTP = "http"
    CONSOLE = "console"
    PYTHON = "python"
    STEP = "step"
    """A handler did it, through a client."""


class Act(NamedTuple):
    """One act of an operator. `act_id` is drawn by the caller, so that a repetition finds its own entry.

    With `actor` None, the entry names the role of the database session.
    """

    verb: AuditVerb
    act_id: int
    actor: str | None
    way: Way
    origin: str | None
    reason: str | None

    @property
    def is_noted(self) -> bool:
        """Return whether the audit notes it: what programs do, perhaps often, is none of it."""
        if self.verb in OF_CALLERS.values():
            return self.way is Way.CONSOLE
        return self.verb not in _OF_TIMERS.values() or self.way in (Way.CLI, Way.CONSOLE)


class Deed(NamedTuple):
    """The object of an act: what was changed."""

    namespace: str | None = None
    process_id: str | None = None
    subject: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An act that was committed. `address` and `application` are those of the database session.

    `subject` is the group, bulk, or token that was changed, if it is no process; `detail` what it is since.
    """

    act_id: str
    acted_at: datetime
    verb: str
    namespace: str | None
    process_id: str | None
    subject: str | None
    detail: str | None
    actor: str
    way: str
    origin: str | None
    reason: str | None
    role: str
    address: str | None
    application: str | None


class AuditPage(NamedTuple):
    """A page of the audit, newest first, and the cursor of the next one; None if this is the last."""

    entries: list[AuditEntry]
    cursor: str | None


def verb_of_request(task_type: TaskType, name: str | None) -> AuditVerb | None:
    """Return the verb of a repair, or of a change of a timer; None for any other request."""
    if task_type is not TaskType.REPAIR:
        return _OF_TIMERS.get(name or "")
    if name == DRY_RUN:
        return None
    return AuditVerb.SIMPLE_REPAIR if name == _SIMPLE_REPAIR else AuditVerb.REPAIR


OF_SCHEDULES = {
    "pause": AuditVerb.PAUSE_SCHEDULE,
    "resume": AuditVerb.RESUME_SCHEDULE,
    "trigger": AuditVerb.TRIGGER_SCHEDULE,
    "backfill": AuditVerb.BACKFILL_SCHEDULE,
}
"""The verbs of calls to schedules, by the names of the calls."""


def check_filter(namespace: str | None, process_id: str | None, verb: str | None) -> None:
    """Raise InvalidRequest, which names what is wrong, unless the audit can be filtered so."""
    if namespace is not None:
        check_namespace(namespace)
    if process_id is not None:
        check_text("process_id", process_id)
    if verb is not None and verb not in tuple(AuditVerb):
        known = all_names_like(str(verb), AuditVerb)
        raise InvalidRequest(f"verb must be one of {known}, not {verb!r:.80}", field="verb")
