"""The runs of schedules: whether one goes on, the processes of a fan-out, and what a target accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from progressor.errors.wordings import SCHEDULES
from progressor.handlers.namespace import Namespace
from progressor.handlers.schedules import Schedule
from progressor.messages.message import MAX_MESSAGES, Message
from progressor.model import ProcessStatus, TaskType, Timer
from progressor.node.node import Node
from progressor.schedules.state import Sent
from progressor.storage import Wanted


class ScheduleRuns:
    """The resource of the steps of schedules: reads, on the connections of their engine."""

    def __init__(self, node: Node, namespaces: Mapping[str, Namespace[Any]]) -> None:
        self._node = node
        self._namespaces = namespaces

    async def goes_on(self, schedule: Schedule, sender_no: int, sent: Sent | None) -> bool:
        """Return whether the run of the last message is under way; its process may wait for a repair.

        A process of an id that is always the same must be gone before it can be started again.
        """
        if sent is None or schedule.each is not None:
            return False
        return await self._node.storage.goes_on(
            sender_no=sender_no,
            task_id=sent.task_id,
            namespace=sent.namespace,
            process_id=sent.process_id,
            idempotency_key=sent.idempotency_key,
            is_start=sent.kind == "start",
            is_same=schedule.start == sent.process_id,
        )

    async def page(self, schedule: Schedule, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Return the ids of the next running processes, as many as a step sends to, and where to go on."""
        chosen = None if schedule.each is None else schedule.each.metadata
        wanted = Wanted(
            namespace=schedule.namespace,
            status=ProcessStatus.RUNNING,
            metadata=None if chosen is None else dict(chosen),
            states=False,
        )
        found, following = await (await self._node.reads()).search(
            wanted, limit=MAX_MESSAGES, cursor=cursor
        )
        return [each.process_id for each in found], following

    async def timer(self, process_id: str) -> Timer | None:
        """Return the timer of a schedule by its rule, as the tables have it; None if it has none."""
        process = await (await self._node.reads()).process(SCHEDULES, process_id)
        timers = () if process is None else process.timers
        return next((each for each in timers if each.name == process_id), None)

    def check(self, message: Message) -> None:
        """Raise InvalidCall if the target of a message is served here, and does not take its arguments."""
        namespace = self._namespaces.get(message.namespace)
        task_type = TaskType.INIT if message.kind == "start" else TaskType.CALL
        function = None if namespace is None else namespace.find(task_type, message.name)
        if function is not None:
            function.read_args(message.args)
