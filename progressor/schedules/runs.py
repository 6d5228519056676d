"""The runs of schedules: whether one goes on, the processes of a fan-out, and what a target accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from progressor.client.reader import Reader
from progressor.handlers.namespace import Namespace
from progressor.handlers.schedules import Schedule
from progressor.messages.message import MAX_MESSAGES, Message
from progressor.model import ProcessStatus, TaskType
from progressor.schedules.state import Sent
from progressor.storage import Storage


class ScheduleRuns:
    """The resource of the steps of schedules: reads, on the connections of their engine."""

    def __init__(self, storage: Storage, reader: Reader, namespaces: Mapping[str, Namespace[Any]]) -> None:
        self._storage = storage
        self._reader = reader
        self._namespaces = namespaces

    async def goes_on(self, schedule: Schedule, sender_no: int, sent: Sent | None) -> bool:
        """Return whether the run of the last message is under way; its process may wait for a repair.

        A process of an id that is always the same must be gone before it can be started again.
        """
        if sent is None or schedule.each is not None:
            return False
        return await self._storage.goes_on(
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
        found, following = await self._reader.search(
            namespace=schedule.namespace,
            namespaces=None,
            status=ProcessStatus.RUNNING,
            metadata=None if chosen is None else dict(chosen),
            timer=None,
            created_after=None,
            created_before=None,
            limit=MAX_MESSAGES,
            cursor=cursor,
            states=False,
        )
        return [each.process_id for each in found], following

    def check(self, message: Message) -> None:
        """Raise InvalidCall if the target of a message is served here, and does not take its arguments."""
        namespace = self._namespaces.get(message.namespace)
        task_type = TaskType.INIT if message.kind == "start" else TaskType.CALL
        function = None if namespace is None else namespace.find(task_type, message.name)
        if function is not None:
            function.read_args(message.args)
