"""The standard streams of a command that was started without some of them."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Else a socket takes its descriptor: libuv aborts when it is to give that to a child, and what is written
    to stderr goes to a peer.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # It takes the lowest number that is free, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
