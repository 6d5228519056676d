"""The failure of a sink that cannot be reached now; what it never accepts is a NonRetryable."""

from __future__ import annotations

from datetime import timedelta

from progressor.errors import ProgressorError


class SinkUnreachable(ProgressorError):
    """The other side of a sink did not accept events now: they are sent again.

    `retry_after` is for how long the other side asks to be left alone, None if it asks for nothing.
    """

    def __init__(self, text: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
