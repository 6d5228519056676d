"""Storage: everything that talks to PostgreSQL.

Rule: other rooms use the names listed here, and no module of this room. `migrations`, `schema_check` and
`doctor` are tools of their own, imported as modules.
"""

from typing import TYPE_CHECKING

from progressor.exports import exports

if TYPE_CHECKING:
    from progressor.storage.admin.archiving import Batch as Batch
    from progressor.storage.admin.bulks import NewBulk as NewBulk, RunningBulks as RunningBulks
    from progressor.storage.admin.monitoring import Backlog as Backlog, LiveWorker as LiveWorker
    from progressor.storage.admin.namespaces import (
        MOST_FAILED as MOST_FAILED,
        Left as Left,
        TaskHold as TaskHold,
    )
    from progressor.storage.admin.reencoding import (
        Found as Found,
        Renewal as Renewal,
        RowKey as RowKey,
        ValueLook as ValueLook,
        ValueTable as ValueTable,
    )
    from progressor.storage.admin.retention import Swept as Swept
    from progressor.storage.admin.subscriptions import (
        ActedOn as ActedOn,
        HeldSlice as HeldSlice,
        KnownSubscription as KnownSubscription,
        Parked as Parked,
        ParkedEntry as ParkedEntry,
        SliceKey as SliceKey,
        committing as committing,
    )
    from progressor.storage.catalog import Difference as Difference
    from progressor.storage.feed.places import FeedPlace as FeedPlace
    from progressor.storage.feed.reading import (
        MOST_FEED_ENTRIES as MOST_FEED_ENTRIES,
        FeedEntry as FeedEntry,
        FeedFilter as FeedFilter,
        Slice as Slice,
    )
    from progressor.storage.group_commit import (
        Batcher as Batcher,
        Conflict as Conflict,
        batch_requests as batch_requests,
        batch_steps as batch_steps,
        by_key as by_key,
        by_process as by_process,
    )
    from progressor.storage.heartbeats import Beats as Beats
    from progressor.storage.notifications import Signals as Signals
    from progressor.storage.operations import Storage as Storage
    from progressor.storage.outbox import (
        Delivery as Delivery,
        Outbox as Outbox,
        UndeliveredMessage as UndeliveredMessage,
        WakesBehind as WakesBehind,
        wakes_nobody as wakes_nobody,
    )
    from progressor.storage.own_sql.transactions import (
        StepTransaction as StepTransaction,
        StepTransactions as StepTransactions,
    )
    from progressor.storage.postgres.dsn import (
        parsed as parsed,
        with_database as with_database,
        with_defaults as with_defaults,
    )
    from progressor.storage.postgres.pipeline import Hints as Hints
    from progressor.storage.postgres.pool import SessionPool as SessionPool
    from progressor.storage.postgres.sequences import refuse_other_server as refuse_other_server
    from progressor.storage.postgres.server_identity import (
        longest_outage as longest_outage,
        place_of as place_of,
        said_by as said_by,
    )
    from progressor.storage.postgres.session_setup import refuse_lent_sessions as refuse_lent_sessions
    from progressor.storage.postgres.sqlstates import BatchRefused as BatchRefused, Unreadable as Unreadable
    from progressor.storage.postgres.transactions import Doubtful as Doubtful
    from progressor.storage.postgres.virtual_time import (
        Clock as Clock,
        virtual_sessions as virtual_sessions,
    )
    from progressor.storage.queries.browsing import Browsing as Browsing
    from progressor.storage.queries.criteria import (
        MOST_ITEMS as MOST_ITEMS,
        AnswerRow as AnswerRow,
        TaskRow as TaskRow,
        TraceRange as TraceRange,
        Wanted as Wanted,
    )
    from progressor.storage.queries.reads import Reads as Reads
    from progressor.storage.queries.watching import (
        WatchRead as WatchRead,
        WatchReads as WatchReads,
        WatchStart as WatchStart,
    )
    from progressor.storage.rows import RenewedRow as RenewedRow
    from progressor.storage.steps.fused import Fused as Fused, FusedFlight as FusedFlight
    from progressor.storage.steps.fused_claim import FusedClaim as FusedClaim
    from progressor.storage.steps.held import RunningHere as RunningHere
    from progressor.storage.steps.zombies import FROM_THE_START as FROM_THE_START
    from progressor.storage.values import (
        KINDS as KINDS,
        ROOM as ROOM,
        Beat as Beat,
        Claimed as Claimed,
        Continue as Continue,
        Duplicate as Duplicate,
        Evidence as Evidence,
        Finished as Finished,
        Gone as Gone,
        Import as Import,
        Kind as Kind,
        LostLease as LostLease,
        NotPrepared as NotPrepared,
        Postpone as Postpone,
        Prepared as Prepared,
        Reason as Reason,
        Request as Request,
        Saved as Saved,
        Step as Step,
        TaskKey as TaskKey,
        TaskOutcome as TaskOutcome,
        TaskRef as TaskRef,
        Zombie as Zombie,
    )
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "admin.archiving": "Batch",
            "admin.bulks": "NewBulk RunningBulks",
            "admin.monitoring": "Backlog LiveWorker",
            "admin.namespaces": "Left MOST_FAILED TaskHold",
            "admin.retention": "Swept",
            "admin.reencoding": "Found ValueLook Renewal RowKey ValueTable",
            "catalog": "Difference",
            "feed.places": "FeedPlace",
            "feed.reading": "FeedEntry FeedFilter MOST_FEED_ENTRIES Slice",
            "admin.subscriptions": (
                "ActedOn HeldSlice KnownSubscription Parked ParkedEntry SliceKey committing"
            ),
            "group_commit": "Batcher Conflict batch_requests batch_steps by_key by_process",
            "heartbeats": "Beats",
            "notifications": "Signals",
            "operations": "Storage",
            "outbox": "Delivery Outbox UndeliveredMessage WakesBehind wakes_nobody",
            "own_sql.transactions": "StepTransaction StepTransactions",
            "postgres.dsn": "parsed with_database with_defaults",
            "postgres.pipeline": "Hints",
            "postgres.pool": "SessionPool",
            "postgres.server_identity": "longest_outage place_of said_by",
            "postgres.sequences": "refuse_other_server",
            "postgres.session_setup": "refuse_lent_sessions",
            "postgres.sqlstates": "BatchRefused Unreadable",
            "postgres.transactions": "Doubtful",
            "postgres.virtual_time": "Clock virtual_sessions",
            "queries.browsing": "Browsing",
            "queries.reads": "Reads",
            "queries.watching": "WatchRead WatchReads WatchStart",
            "queries.criteria": "AnswerRow MOST_ITEMS TaskRow TraceRange Wanted",
            "rows": "RenewedRow",
            "steps.fused": "Fused FusedFlight",
            "steps.fused_claim": "FusedClaim",
            "steps.held": "RunningHere",
            "steps.zombies": "FROM_THE_START",
            "values": (
                "Beat Claimed Continue Duplicate Evidence Finished Gone Import KINDS Kind LostLease "
                "NotPrepared Postpone Prepared ROOM Reason Request Saved Step TaskKey "
                "TaskOutcome TaskRef Zombie"
            ),
        },
    )
