"""The statuses of processes as options state them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from progressor.model import ProcessStatus

# Words of the docs and of the console for processes in status error.
_OF_BROKEN = ("broken", "failed", "failing", "corrupted")


def status_option(*names: str, allowed: tuple[str, ...] = tuple(ProcessStatus), **more: Any) -> Any:
    """Return the option of a status; a text that is none of them is an error that lists them."""
    return typer.Option(*names, parser=_reader(allowed), metavar=f"<{'|'.join(allowed)}>", **more)


def _reader(allowed: tuple[str, ...]) -> Callable[[str], str]:
    def status(text: str) -> str:
        if text in allowed:
            return text
        known = f"{text!r} is not {'one of ' if len(allowed) > 1 else ''}{', '.join(allowed)}"
        is_of_broken = text.lower() in _OF_BROKEN
        raise typer.BadParameter(
            f"{known}: broken processes have the status error" if is_of_broken else known
        )

    return status
