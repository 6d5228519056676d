"""The standard streams of a command, of which some may be closed at its start."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise a socket takes its descriptor: then libuv aborts when it starts a child, and text for stderr
    goes to the peer of the socket.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # `open` takes the lowest free descriptor, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
