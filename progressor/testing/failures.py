"""Failures in a world: what its handlers raised, and the errors that a test gets for it."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import format_exception
from typing import NamedTuple

from progressor.app.middleware import StepView
from progressor.errors.wordings import named


class WorldError(AssertionError):
    """A world found a failure of its test; the base of the errors of the test kit."""


class BrokenProcess(NamedTuple):
    """A process that broke, with the text of the traceback of the handler that broke it."""

    namespace: str
    process_id: str
    detail: str | None
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{named(self.namespace, self.process_id)} broke: {self.traceback or self.detail}"


class BrokenInWorld(WorldError):
    """Processes broke in steps that no caller waits for: timers and notices."""

    def __init__(self, processes: Sequence[BrokenProcess]) -> None:
        super().__init__("\n".join(map(str, processes)))
        self.processes = tuple(processes)


class RunawayWorld(WorldError):
    """More steps ran than one advance may have: a handler sets timers that are due at once, say."""


class UnreadableStates(WorldError):
    """Stored states that the types of today cannot read; `faults` has a line for each, without values."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class HandlerError(NamedTuple):
    """An exception of a handler or of middleware, with its step."""

    step: StepView
    traceback: str

    @classmethod
    def of(cls, step: StepView, error: BaseException) -> HandlerError:
        """Return it with the traceback as text: frames would keep the handler's values alive."""
        return cls(step, "".join(format_exception(error)).rstrip())

    @property
    def key(self) -> tuple[str, str]:
        """The process, by its name."""
        return self.step.namespace, self.step.process_id

    def __str__(self) -> str:
        return f"{self.step.name or self.step.task_type.value} on {named(*self.key)}"
