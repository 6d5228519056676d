"""The errors about one process: the text of each names it, a schedule as a schedule."""

from __future__ import annotations

from progressor.errors.base import ProgressorError
from progressor.errors.wordings import SCHEDULES, process_text


class AboutProcess(ProgressorError):
    """An error about one process: its `namespace` and `process_id`, and `detail`, a text or None."""

    _says = "{process}"

    def __init__(self, namespace: str, process_id: str, *, detail: str | None = None) -> None:
        text = self._says.format(process=process_text(namespace, process_id))
        super().__init__(f"{text}: {detail}" if detail else text)
        self.namespace = namespace
        self.process_id = process_id
        self.detail = detail


class ProcessNotFound(AboutProcess):
    """There is no such process, or it was removed while the request waited."""

    _says = "no {process}"


class ScheduleNotFound(ProcessNotFound):
    """No engine that declares such a schedule was ever started here, or the schedule was removed.

    `process_id` is its namespace and its name: `shop.books/nightly`.
    """


def process_not_found(namespace: str, process_id: str, *, detail: str | None = None) -> ProcessNotFound:
    """Return the error of a process that is not there: ScheduleNotFound if it would be a schedule."""
    kind = ScheduleNotFound if namespace == SCHEDULES else ProcessNotFound
    return kind(namespace, process_id, detail=detail)
