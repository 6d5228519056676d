"""Makers of tasks, snapshots and typed steps; nothing here touches a database."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from progressor.handlers.namespace import Namespace
from progressor.handlers.perform import perform
from progressor.handlers.running.deadlines import Deadlines
from progressor.model import Outcome, ProcessStatus, Snapshot, Task, TaskType

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)

MakeTask = Callable[..., Task]
MakeSnapshot = Callable[..., Snapshot]
RunStep = Callable[..., Awaitable[Outcome]]


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    def make(task_type: TaskType = TaskType.CALL, name: str | None = None, **more: Any) -> Task:
        values = {
            "namespace": "billing",
            "process_id": "acme",
            "task_id": 7,
            "name": name,
            "scheduled_time": NOW - timedelta(seconds=1),
            "running_time": NOW,
        }
        return Task(task_type=task_type, **(values | more))

    return make


@pytest.fixture(scope="session")
def make_snapshot() -> MakeSnapshot:
    def make(status: ProcessStatus = ProcessStatus.RUNNING, **more: Any) -> Snapshot:
        values = {
            "process_no": 1,
            "namespace": "billing",
            "process_id": "acme",
            "previous_status": None,
            "status_changed_at": NOW,
            "created_at": NOW,
            "detail": None,
            "aux_state": None,
            "metadata": {},
            "corrupted_by": None,
            "last_event_id": 0,
        }
        return Snapshot(status=status, **(values | more))

    return make


@pytest.fixture(scope="session")
def run_step(make_task: MakeTask, make_snapshot: MakeSnapshot) -> RunStep:
    """Perform one step of a namespace: the call `name`, or another type of task."""

    async def run(
        namespace: Namespace,
        name: str | None = None,
        args: bytes | None = None,
        *,
        task_type: TaskType = TaskType.CALL,
        context: bytes | None = None,
        **process: Any,
    ) -> Outcome:
        task = make_task(task_type, name, args=args, context=context)
        return await perform(namespace, make_snapshot(**process), task, Deadlines(5))

    return run
