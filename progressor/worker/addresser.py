"""Messages of a step on their way to the outbox: sealed for their targets, each with its key.

Rule: arguments are sealed with the codec of the target's namespace, as a client seals them, if this engine
serves it; else with the codec of the sender, so that nothing that a codec hides stands open in the outbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from progressor.handlers.codec import Wire
from progressor.messages.message import Message, message_key, request_hash
from progressor.model import Failure, Outcome, Success, Task, TaskType


class Addresser:
    """The way of a namespace's messages into the outbox; `wires` are those of all that are served here."""

    def __init__(self, own: Wire, wires: Mapping[str, Wire]) -> None:
        self._own = own
        self._wires = wires

    def addressed(self, outcome: Outcome, task: Task) -> Outcome:
        """Return the outcome with its messages as they are stored; a Failure if a codec raises."""
        if not isinstance(outcome, Success) or not outcome.intent.messages:
            return outcome
        try:
            messages = tuple(
                self._sealed(each, message_key(task.task_id, place, task.lease))
                for place, each in enumerate(outcome.intent.messages)
            )
        except Exception as error:  # noqa: BLE001 - a codec is the user's code
            return Failure(
                f"a message cannot be encoded: {type(error).__name__}", (type(error).__name__, "Exception")
            )
        return Success(replace(outcome.intent, messages=messages))

    def _sealed(self, message: Message, key: str) -> Message:
        wire = self._wires.get(message.namespace, self._own)
        task_type = TaskType.INIT if message.kind == "start" else TaskType.NOTIFY
        return replace(
            message,
            args=None if message.args is None else wire.seal(message.args, "args", message),
            idempotency_key=message.idempotency_key or key,
            request_hash=request_hash(task_type, message.name, message.args),
        )
