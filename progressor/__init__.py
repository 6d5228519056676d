"""Progressor: an Erlang-style process engine on PostgreSQL."""

from progressor.bulks import BrokenGroup, Bulk, BulkPreview, BulkStatus
from progressor.client.client import Client, ProcessHandle
from progressor.client.failure_groups import FailureGroup
from progressor.client.results import Health, Page, Published, Receipt, TraceEntry
from progressor.client.sync import SyncClient
from progressor.config import RetryPolicy
from progressor.deployment.database import development_database
from progressor.engine import Engine
from progressor.errors import (
    BulkNotFound,
    CallCycle,
    HandlerFailed,
    IdempotencyConflict,
    InvalidRequest,
    InvalidState,
    NamespaceInUse,
    NamespaceNotFound,
    NonRetryable,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProcessNotFound,
    ProgressorError,
    Reject,
    Rejected,
    RepairConflict,
    ReplyTimeout,
    RequestLost,
    SchemaMismatch,
    StorageUnavailable,
    TaskCancelled,
    TaskNotFound,
)
from progressor.handlers.codec import Codec
from progressor.handlers.handler import Handler
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.model import (
    Event,
    HistoryRange,
    Intent,
    ProcessStatus,
    Remove,
    SetTimer,
    Task,
    TaskStatus,
    TaskType,
    Timer,
    TimerStatus,
    UnsetTimer,
)
from progressor.release import VERSION
from progressor.storage import KnownNamespace, KnownWorker, Mailbox, NamespaceStatus, WaitingRequests

__version__ = VERSION

__all__ = [
    # serving
    "Engine",
    "Namespace",
    "Handler",
    "Process",
    "Task",
    "TaskType",
    "TaskStatus",
    "ProcessStatus",
    "Event",
    "HistoryRange",
    "Timer",
    "TimerStatus",
    "Intent",
    "SetTimer",
    "UnsetTimer",
    "Remove",
    "Reject",
    "NonRetryable",
    "RetryPolicy",
    "Codec",
    # asking
    "Client",
    "SyncClient",
    "ProcessHandle",
    "TraceEntry",
    "Page",
    "Health",
    "Receipt",
    "Published",
    "KnownNamespace",
    "KnownWorker",
    "NamespaceStatus",
    "WaitingRequests",
    "Mailbox",
    "FailureGroup",
    "Bulk",
    "BulkStatus",
    "BulkPreview",
    "BrokenGroup",
    # trying things out
    "development_database",
    # errors
    "ProgressorError",
    "InvalidRequest",
    "InvalidState",
    "IdempotencyConflict",
    "CallCycle",
    "NamespaceNotFound",
    "NamespaceInUse",
    "ProcessNotFound",
    "TaskCancelled",
    "TaskNotFound",
    "ProcessAlreadyExists",
    "ProcessBroken",
    "ProcessNotBroken",
    "Rejected",
    "RepairConflict",
    "HandlerFailed",
    "ReplyTimeout",
    "RequestLost",
    "BulkNotFound",
    "StorageUnavailable",
    "SchemaMismatch",
    # which release this is
    "__version__",
]
