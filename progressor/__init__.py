"""Progressor: an Erlang-style process engine on PostgreSQL."""

from typing import TYPE_CHECKING

from progressor.exports import exports
from progressor.release import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from progressor.acts.act import AuditEntry as AuditEntry, AuditPage as AuditPage
    from progressor.acts.acting import acting as acting
    from progressor.app.app import App as App, Lifespan as Lifespan
    from progressor.app.middleware import (
        CallNext as CallNext,
        Middleware as Middleware,
        StepView as StepView,
    )
    from progressor.bulks import (
        BrokenGroup as BrokenGroup,
        Bulk as Bulk,
        BulkPreview as BulkPreview,
        BulkStatus as BulkStatus,
    )
    from progressor.calendars.cron import Cron as Cron
    from progressor.calendars.monthly import Monthly as Monthly
    from progressor.calendars.rrule import RRule as RRule
    from progressor.client.client import Client as Client
    from progressor.client.failure_groups import FailureGroup as FailureGroup
    from progressor.client.handle import ProcessHandle as ProcessHandle
    from progressor.client.results import (
        Health as Health,
        Page as Page,
        Published as Published,
        Receipt as Receipt,
        TraceEntry as TraceEntry,
    )
    from progressor.client.sync import SyncClient as SyncClient
    from progressor.config import Rate as Rate, Retention as Retention, RetryPolicy as RetryPolicy
    from progressor.deployment.database import development_database as development_database
    from progressor.engine import Engine as Engine
    from progressor.errors import (
        BulkNotFound as BulkNotFound,
        CallCycle as CallCycle,
        Expired as Expired,
        HandlerFailed as HandlerFailed,
        HistoryTruncated as HistoryTruncated,
        IdempotencyConflict as IdempotencyConflict,
        InvalidAnswer as InvalidAnswer,
        InvalidRequest as InvalidRequest,
        InvalidState as InvalidState,
        LifespanFailed as LifespanFailed,
        NamespaceInUse as NamespaceInUse,
        NamespaceNotFound as NamespaceNotFound,
        NonRetryable as NonRetryable,
        ProcessAlreadyExists as ProcessAlreadyExists,
        ProcessBroken as ProcessBroken,
        ProcessNotBroken as ProcessNotBroken,
        ProcessNotFound as ProcessNotFound,
        ProgressorError as ProgressorError,
        Reject as Reject,
        Rejected as Rejected,
        RepairConflict as RepairConflict,
        ReplyTimeout as ReplyTimeout,
        RequestLost as RequestLost,
        SchemaMismatch as SchemaMismatch,
        StepTransactionError as StepTransactionError,
        StorageUnavailable as StorageUnavailable,
        TaskCancelled as TaskCancelled,
        TaskNotEnded as TaskNotEnded,
        TaskNotFound as TaskNotFound,
    )
    from progressor.handlers.codec import Codec as Codec
    from progressor.handlers.handler import Handler as Handler
    from progressor.handlers.namespace import Namespace as Namespace
    from progressor.handlers.process import Process as Process
    from progressor.handlers.schedules import Each as Each
    from progressor.messages.message import Message as Message
    from progressor.model import (
        Event as Event,
        HistoryRange as HistoryRange,
        Intent as Intent,
        ProcessStatus as ProcessStatus,
        Remove as Remove,
        Task as Task,
        TaskStatus as TaskStatus,
        TaskType as TaskType,
        Timer as Timer,
        TimerStatus as TimerStatus,
    )
    from progressor.monitoring import (
        KnownGroup as KnownGroup,
        KnownNamespace as KnownNamespace,
        KnownRetention as KnownRetention,
        KnownWorker as KnownWorker,
        Mailbox as Mailbox,
        NamespaceStatus as NamespaceStatus,
        RetentionEstimate as RetentionEstimate,
        WaitingRequests as WaitingRequests,
    )
    from progressor.timers import SetTimer as SetTimer, UnsetTimer as UnsetTimer
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "acts.act": "AuditEntry AuditPage",
            "acts.acting": "acting",
            "app.app": "App Lifespan",
            "app.middleware": "CallNext Middleware StepView",
            "bulks": "BrokenGroup Bulk BulkPreview BulkStatus",
            "calendars.cron": "Cron",
            "calendars.monthly": "Monthly",
            "calendars.rrule": "RRule",
            "client.client": "Client",
            "client.failure_groups": "FailureGroup",
            "client.handle": "ProcessHandle",
            "client.results": "Health Page Published Receipt TraceEntry",
            "client.sync": "SyncClient",
            "config": "Rate Retention RetryPolicy",
            "deployment.database": "development_database",
            "engine": "Engine",
            "errors": (
                "BulkNotFound CallCycle Expired HandlerFailed HistoryTruncated IdempotencyConflict "
                "InvalidAnswer InvalidRequest InvalidState LifespanFailed NamespaceInUse NamespaceNotFound "
                "NonRetryable ProcessAlreadyExists ProcessBroken ProcessNotBroken ProcessNotFound "
                "ProgressorError Reject Rejected RepairConflict ReplyTimeout RequestLost SchemaMismatch "
                "StepTransactionError StorageUnavailable TaskCancelled TaskNotEnded TaskNotFound"
            ),
            "handlers.codec": "Codec",
            "handlers.handler": "Handler",
            "handlers.namespace": "Namespace",
            "handlers.process": "Process",
            "handlers.schedules": "Each",
            "messages.message": "Message",
            "model": (
                "Event HistoryRange Intent ProcessStatus Remove Task TaskStatus TaskType Timer TimerStatus"
            ),
            "monitoring": (
                "KnownGroup KnownNamespace KnownRetention KnownWorker Mailbox NamespaceStatus "
                "RetentionEstimate WaitingRequests"
            ),
            "timers": "SetTimer UnsetTimer",
        },
    )
    __all__ += ["__version__"]
