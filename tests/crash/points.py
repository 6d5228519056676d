"""The named points at which a process can die: before, amid and after each commit, send and reply.

A point is `place:phase`. For a storage verb the phases are `before` (nothing was sent), `sent` (the whole
transaction is on its way, its answer unread: committed or not, the dead cannot know) and `after` (it is
committed and known). For a function they are `before` and `after`. Nothing of this is in the product: the
points are laid around its functions in a child process.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from progressor.archive.places import Directory
from progressor.client.feed.projecting import ProjectionReceiver
from progressor.handlers import perform
from progressor.node import replies
from progressor.storage.heartbeats import Beats
from progressor.storage.postgres.pipeline import Hints, Session
from progressor.worker import pool, started_step, worker

DEAD = 86

# What a worker's process does in a run with calls of another process and a timer.
WORKER = [
    *(f"search_calls:{phase}" for phase in ("before", "sent", "after")),
    *(f"search_timers:{phase}" for phase in ("before", "sent", "after")),
    *(f"save_result_timeless:{phase}" for phase in ("before", "sent", "after")),
    *(f"save_lite:{phase}" for phase in ("before", "sent", "after")),
    *(f"perform:{phase}" for phase in ("before", "after")),
    *(f"tell:{phase}" for phase in ("before", "after")),
    *(f"notify:{phase}" for phase in ("before", "sent", "after")),
    *(f"register_namespace:{phase}" for phase in ("before", "sent", "after")),
    *(f"heartbeat:{phase}" for phase in ("before", "after")),
    *(f"backlog:{phase}" for phase in ("before", "sent", "after")),
]
# Of these, those of a recurring timer's step.
RECURRING = [
    *(f"search_timers:{phase}" for phase in ("before", "sent", "after")),
    *(f"save_lite:{phase}" for phase in ("before", "sent", "after")),
    *(f"perform:{phase}" for phase in ("before", "after")),
]
# And of one that runs in the transaction that claims it.
RECURRING_FUSED = [
    *(f"search_timers:{phase}" for phase in ("before", "sent", "after")),
    *(f"save_lite:{phase}" for phase in ("before", "sent", "after")),
    *(
        f"{place}:{phase}"
        for place in ("begin_step", "decision_if_done", "go_on_after")
        for phase in ("before", "after")
    ),
]
# And where it runs calls in the transactions that claim them: deposits that end at once,
FUSING_AT_ONCE = [
    *(
        f"{verb}:{phase}"
        for verb in ("search_calls", "save_result_timeless")
        for phase in ("before", "sent", "after")
    ),
    *(
        f"{place}:{phase}"
        for place in ("begin_step", "decision_if_done", "tell")
        for phase in ("before", "after")
    ),
    *(f"go_on_after:{phase}" for phase in ("before", "after")),
]
# or that go on.
FUSING_WORKER = [
    *(f"commit:{phase}" for phase in ("before", "sent", "after")),
    *(f"go_on:{phase}" for phase in ("before", "after")),
]
# And where handlers write rows of their own: the save in the transaction that they had, and its COMMIT.
OWN_SQL = [
    *(f"reset_role:{phase}" for phase in ("before", "sent", "after")),
    *(f"commit:{phase}" for phase in ("before", "sent", "after")),
    *(f"tell:{phase}" for phase in ("before", "after")),
]
# And where deposits send messages: they are saved with their steps, and then delivered.
SENDING_WORKER = [
    f"{verb}:{phase}"
    for verb in ("send_messages", "take_messages", "drop_messages")
    for phase in ("before", "sent", "after")
]
# What it does where calls wait on some of the processes whose inits it saves at one moment.
CROWDED_WORKER = [
    *(f"save_lite:{phase}" for phase in ("before", "sent", "after")),
    *(f"save_result_timeless:{phase}" for phase in ("before", "sent", "after")),
]
# What a process does that asks its own engine.
ENGINE_CLIENT = [
    *(f"prepare_init:{phase}" for phase in ("before", "sent", "after")),
]
# The same with `fuse="always"`, where a start ends at once, and a deposit too.
FUSED_AT_ONCE = [
    *(f"fused_look:{phase}" for phase in ("before", "sent", "after")),
    *(f"begin_step:{phase}" for phase in ("before", "after")),
    *(f"decision_if_done:{phase}" for phase in ("before", "after")),
    *(f"fused_save_timeless:{phase}" for phase in ("before", "sent", "after")),
    *(f"end_fused:{phase}" for phase in ("before", "after")),
]
# And where a deposit goes on.
FUSED_CLIENT = [
    *(f"fused_make:{phase}" for phase in ("before", "sent", "after")),
    *(f"fused_run:{phase}" for phase in ("before", "sent", "after")),
    *(f"go_on:{phase}" for phase in ("before", "after")),
]
# And where the answer to the first commit of a deposit is lost.
DOUBTFUL_CLIENT = [
    *(f"prepare_call:{phase}" for phase in ("before", "sent", "after")),
]
# What a client's process does.
CLIENT = [
    *(f"prepare_init:{phase}" for phase in ("before", "sent", "after")),
    *(f"prepare_call:{phase}" for phase in ("before", "sent", "after")),
    *(f"live_workers:{phase}" for phase in ("before", "sent", "after")),
    *(f"notify:{phase}" for phase in ("before", "sent", "after")),
    *(f"replies:{phase}" for phase in ("before", "sent", "after")),
]
# What it does to run requests again.
REDOING_CLIENT = [
    *(f"copy_request:{phase}" for phase in ("before", "sent", "after")),
]
SCANNER = [
    *(f"served_namespaces:{phase}" for phase in ("before", "sent", "after")),
    *(f"backlog:{phase}" for phase in ("before", "sent", "after")),
    *(f"live_workers:{phase}" for phase in ("before", "sent", "after")),
]
COLLECTOR = [
    *(f"find_zombies:{phase}" for phase in ("before", "sent", "after")),
    *(f"release:{phase}" for phase in ("before", "sent", "after")),
    *(f"commit:{phase}" for phase in ("before", "sent", "after")),
]
# What a bulk runner does beside it, of one bulk.
BULK_RUNNER = [
    f"{verb}:{phase}"
    for verb in ("next_bulk", "running_bulks", "lock_bulk", "look_bulk", "choose_bulk", "note_bulk")
    for phase in ("before", "sent", "after")
]
# And of one that runs requests again.
REDOING_BULK_RUNNER = [
    f"{verb}:{phase}"
    for verb in ("due_redos", "broken_requests", "copy_request", "note_redos", "note_bulk", "settle_bulk")
    for phase in ("before", "sent", "after")
]
# What a retention sweeper does beside it, of a walk that deletes.
SWEEPER = [
    f"{verb}:{phase}"
    for verb in (
        "lock_sweep",
        "look_sweep",
        "look_tasks",
        "lock_swept",
        "sweep_tasks",
        "note_sweep",
        "commit",
    )
    for phase in ("before", "sent", "after")
]
# What one does that archives first, of each part. A file has its name once it is written.
ARCHIVER_FILES = [
    f"{place}:{phase}"
    for place in (
        "write_part",
        "name_part",
        "read_part",
        "write_manifest",
        "name_manifest",
        "read_manifest",
    )
    for phase in ("before", "after")
]
# And of what it then deletes: two processes of each part, in a transaction each.
ARCHIVER_DELETES = [
    f"{verb}:{phase}" for verb in ("lock_walk", "sweep_tasks") for phase in ("before", "sent", "after")
]
ARCHIVER_CLAIMS = [f"lock_sweep:{phase}" for phase in ("before", "sent", "after")]
ARCHIVER_COMMITS = [f"commit:{phase}" for phase in ("before", "sent", "after")]
# What a reader of a durable subscription does with a batch.
SUBSCRIPTION_READER = [
    *(f"commit_slice:{phase}" for phase in ("before", "sent", "after")),
]
# What an engine does in the transaction of a projection: its functions, the checkpoint, COMMIT.
PROJECTING = [
    "project:after",
    *(f"commit_slice:{phase}" for phase in ("before", "sent", "after")),
    *(f"commit:{phase}" for phase in ("sent", "after")),
]
# What whoever looks at the feed does, if rows wait for their positions.
NUMBERING = [
    f"{verb}:{phase}" for verb in ("lock_feed", "number_feed") for phase in ("before", "sent", "after")
]
STOP = [
    *(f"hand_back:{phase}" for phase in ("before", "sent", "after")),
    *(f"deregister:{phase}" for phase in ("before", "after")),
]

# The files of an archive, and the functions that have a point around them.
_FILES = {
    f"{verb}_{file}": where
    for verb, where in {
        "write": (Directory, "write"),
        "name": (Path, "replace"),
        "read": (Directory, "read"),
    }.items()
    for file in ("part", "manifest")
}
_FUNCTIONS: dict[str, tuple[Any, str]] = {
    **_FILES,
    **{name: (pool.Pool, name) for name in ("begin_step", "end_fused", "go_on", "go_on_after")},
    "tell": (replies.Replies, "resolve"),
    "decision_if_done": (started_step.StartedStep, "decision_if_done"),
    "heartbeat": (Beats, "beat"),
    "deregister": (Beats, "leave"),
}


def arm(point: str, *, nth: int = 1) -> None:
    """Let this process die when it comes to the point for the n-th time."""
    place, phase = point.split(":")
    left = nth

    def reached() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(DEAD)

    match place:
        case "perform":
            _wrap_async(perform, "perform", phase, reached)
            worker.perform = perform.perform
        case "project":
            _wrap_async(ProjectionReceiver, "_project", phase, reached)
        case "hand_back":
            _arm_verb("release", phase, reached)
        case _ if place in _FUNCTIONS:
            is_manifest = place.endswith("manifest") if place in _FILES else None
            _wrap(*_FUNCTIONS[place], phase, reached, is_manifest=is_manifest)
        case _:
            _arm_verb(place, phase, reached)


def _arm_verb(verb: str, phase: str, reached: Callable[[], None]) -> None:
    send, flush = Session._send, Session._flush
    under_way: set[int] = set()

    async def dying_send(self: Session, statements: Any, hints: Hints | None = None) -> Any:
        hit = verb in statements or (verb == "notify" and hints is not None)
        if hit:
            if phase == "before":
                reached()
            # Prepared first, in a round trip of its own: the flush that follows is the transaction's.
            await self._prepare({**statements, **({} if hints is None else {"notify": hints.params})})
            under_way.add(id(self))
        try:
            result = await send(self, statements, hints)
        finally:
            under_way.discard(id(self))
        if hit and phase == "after":
            reached()
        return result

    async def dying_flush(self: Session) -> None:
        await flush(self)
        if phase == "sent" and id(self) in under_way:
            reached()

    Session._send = dying_send  # type: ignore[method-assign]
    Session._flush = dying_flush  # type: ignore[method-assign]


def _wrap(
    owner: Any, name: str, phase: str, reached: Callable[[], None], *, is_manifest: bool | None = None
) -> None:
    """Lay a point around a function; with `is_manifest`, if it is called with such a file's name."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def dying(*args: Any, **kwargs: Any) -> Any:
        is_meant = is_manifest is None or str(args[1]).endswith(".json") is is_manifest
        if is_meant and phase == "before":
            reached()
        result = original(*args, **kwargs)
        if is_meant and phase == "after":
            reached()
        return result

    setattr(owner, name, dying)


def _wrap_async(owner: Any, name: str, phase: str, reached: Callable[[], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        if phase == "before":
            reached()
        result = await original(*args, **kwargs)
        if phase == "after":
            reached()
        return result

    setattr(owner, name, dying)
