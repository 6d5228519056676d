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
    from progressor.app.projection import Projection as Projection
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
    from progressor.client.feed.sink import Sink as Sink
    from progressor.client.feed.subscription import FeedBatch as FeedBatch, Subscription as Subscription
    from progressor.client.handle import ProcessHandle as ProcessHandle
    from progressor.client.results import (
        FeedEvent as FeedEvent,
        Health as Health,
        Page as Page,
        ProcessChange as ProcessChange,
        Published as Published,
        Receipt as Receipt,
        TraceEntry as TraceEntry,
    )
    from progressor.client.sync import SyncClient as SyncClient
    from progressor.codecs.codec import Codec as Codec
    from progressor.config import Rate as Rate, Retention as Retention, RetryPolicy as RetryPolicy
    from progressor.deployment.database import development_database as development_database
    from progressor.engine import Engine as Engine
    from progressor.errors import (
        ArchiveDamaged as ArchiveDamaged,
        ArchiveUnavailable as ArchiveUnavailable,
        BulkNotFound as BulkNotFound,
        CallCycle as CallCycle,
        Expired as Expired,
        FeedTruncated as FeedTruncated,
        HandlerFailed as HandlerFailed,
        HistoryTruncated as HistoryTruncated,
        IdempotencyConflict as IdempotencyConflict,
        InvalidAnswer as InvalidAnswer,
        InvalidRequest as InvalidRequest,
        InvalidState as InvalidState,
        KeyMissing as KeyMissing,
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
        ScheduleNotFound as ScheduleNotFound,
        SchemaMismatch as SchemaMismatch,
        StepTransactionError as StepTransactionError,
        StorageUnavailable as StorageUnavailable,
        SubscriptionLost as SubscriptionLost,
        TaskCancelled as TaskCancelled,
        TaskNotEnded as TaskNotEnded,
        TaskNotFound as TaskNotFound,
        Undecryptable as Undecryptable,
    )
    from progressor.handlers.dry_run import DryRun as DryRun, DueTimer as DueTimer
    from progressor.handlers.handler import Handler as Handler
    from progressor.handlers.namespace import Namespace as Namespace
    from progressor.handlers.process import Process as Process
    from progressor.handlers.running.log_fields import log_fields as log_fields
    from progressor.handlers.schedules import Each as Each
    from progressor.inputs import HistoryRange as HistoryRange
    from progressor.messages.message import Message as Message
    from progressor.model import (
        Event as Event,
        FeedKind as FeedKind,
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
    from progressor.spans.in_use import tracing as tracing
    from progressor.storage import KnownSubscription as KnownSubscription, ParkedEntry as ParkedEntry
    from progressor.timers import SetTimer as SetTimer, UnsetTimer as UnsetTimer
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "acts.act": "AuditEntry AuditPage",
            "acts.acting": "acting",
            "app.app": "App Lifespan",
            "app.middleware": "CallNext Middleware StepView",
            "app.projection": "Projection",
            "bulks": "BrokenGroup Bulk BulkPreview BulkStatus",
            "calendars.cron": "Cron",
            "calendars.monthly": "Monthly",
            "calendars.rrule": "RRule",
            "client.client": "Client",
            "client.failure_groups": "FailureGroup",
            "client.feed.sink": "Sink",
            "client.feed.subscription": "FeedBatch Subscription",
            "client.handle": "ProcessHandle",
            "client.results": "FeedEvent Health Page ProcessChange Published Receipt TraceEntry",
            "client.sync": "SyncClient",
            "codecs.codec": "Codec",
            "config": "Rate Retention RetryPolicy",
            "deployment.database": "development_database",
            "engine": "Engine",
            "errors": (
                "ArchiveDamaged ArchiveUnavailable "
                "BulkNotFound CallCycle Expired FeedTruncated HandlerFailed HistoryTruncated "
                "IdempotencyConflict "
                "InvalidAnswer InvalidRequest InvalidState KeyMissing LifespanFailed NamespaceInUse "
                "NamespaceNotFound NonRetryable ProcessAlreadyExists ProcessBroken ProcessNotBroken "
                "ProcessNotFound ProgressorError Reject Rejected RepairConflict ReplyTimeout RequestLost "
                "ScheduleNotFound SchemaMismatch StepTransactionError StorageUnavailable SubscriptionLost "
                "TaskCancelled TaskNotEnded TaskNotFound Undecryptable"
            ),
            "handlers.dry_run": "DryRun DueTimer",
            "handlers.handler": "Handler",
            "handlers.namespace": "Namespace",
            "handlers.process": "Process",
            "handlers.schedules": "Each",
            "handlers.running.log_fields": "log_fields",
            "inputs": "HistoryRange",
            "messages.message": "Message",
            "model": (
                "Event FeedKind Intent ProcessStatus Remove Task TaskStatus TaskType Timer TimerStatus"
            ),
            "monitoring": (
                "KnownGroup KnownNamespace KnownRetention KnownWorker Mailbox NamespaceStatus "
                "RetentionEstimate WaitingRequests"
            ),
            "spans.in_use": "tracing",
            "storage": "KnownSubscription ParkedEntry",
            "timers": "SetTimer UnsetTimer",
        },
    )
    __all__ += ["__version__"]
