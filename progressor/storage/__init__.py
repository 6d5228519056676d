"""Everything that talks to PostgreSQL: tables, statements, operations, reads, signals.

Rule: what stands here is what other rooms may use; how it is done is known in here alone. `migrations` and
`doctor` are tools of their own, imported by their names.
"""

from progressor.storage.admin.bulks import BulkRound, RunningBulks
from progressor.storage.admin.mailboxes import Mailbox, WaitingRequests
from progressor.storage.admin.monitoring import LiveWorker, Waiting
from progressor.storage.admin.namespaces import (
    MOST_COUNTED,
    Failed,
    KnownNamespace,
    KnownWorker,
    Left,
    NamespaceStatus,
)
from progressor.storage.catalog import Difference
from progressor.storage.group_commit import Batcher, batch_by_key, batch_by_process, batch_steps
from progressor.storage.heartbeats import Beats
from progressor.storage.notifications import KINDS, Kind, Signals
from progressor.storage.operations import Storage
from progressor.storage.postgres.dsn import parsed, with_defaults
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.postgres.server_identity import place_of
from progressor.storage.postgres.session_setup import refuse_lent_sessions
from progressor.storage.postgres.sqlstates import BatchRefused, Unreadable
from progressor.storage.queries.reads import Reads
from progressor.storage.queries.searches import MOST_ITEMS, TimerFilter, Wanted
from progressor.storage.queries.traces import TaskRow, TraceRange
from progressor.storage.steps.fused import Doubtful, Fused, Run
from progressor.storage.steps.zombies import FROM_THE_START
from progressor.storage.values import (
    ROOM,
    Beat,
    Claimed,
    Continue,
    Duplicate,
    Evidence,
    Finished,
    Gone,
    Import,
    LostLease,
    NewBulk,
    NotPrepared,
    Postpone,
    Prepared,
    Reason,
    Request,
    Saved,
    Step,
    TaskKey,
    TaskOutcome,
    TaskRef,
    Zombie,
)

__all__ = [
    "BatchRefused",
    "Batcher",
    "Beat",
    "Beats",
    "Claimed",
    "SessionPool",
    "Continue",
    "Difference",
    "Doubtful",
    "Duplicate",
    "Finished",
    "Fused",
    "Evidence",
    "FROM_THE_START",
    "Failed",
    "Gone",
    "Import",
    "KINDS",
    "Kind",
    "KnownNamespace",
    "KnownWorker",
    "Left",
    "LiveWorker",
    "LostLease",
    "MOST_COUNTED",
    "MOST_ITEMS",
    "Mailbox",
    "NamespaceStatus",
    "NewBulk",
    "NotPrepared",
    "Postpone",
    "Prepared",
    "ROOM",
    "Reads",
    "Reason",
    "Request",
    "BulkRound",
    "RunningBulks",
    "Run",
    "Saved",
    "Signals",
    "TaskOutcome",
    "Step",
    "Storage",
    "TaskKey",
    "TaskRef",
    "TaskRow",
    "TimerFilter",
    "TraceRange",
    "Unreadable",
    "Waiting",
    "WaitingRequests",
    "Wanted",
    "Zombie",
    "batch_by_key",
    "batch_by_process",
    "batch_steps",
    "parsed",
    "place_of",
    "refuse_lent_sessions",
    "with_defaults",
]
