"""Forked children of handlers: none of them is a worker.

Rule: a child that returns from the handler ends there. Its connections and its event loop are those of
the worker, which goes on with them.
"""

from __future__ import annotations

import os

# EX_SOFTWARE of sysexits.h.
STATUS = 70
_ENDS = b"progressor: a handler forked, and its child came back from it: the child ends here\n"
_is_child = False


def note_child() -> None:
    """Note that a handler forked this OS process."""
    global _is_child  # noqa: PLW0603  # it holds for the whole OS process
    _is_child = True


def end_child() -> None:
    """End this OS process if a handler forked it; the parent goes on."""
    if _is_child:
        # No log line: the thread that would write it is the parent's.
        os.write(2, _ENDS)
        os._exit(STATUS)
