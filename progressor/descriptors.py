"""File descriptors of this OS process: their limit, and whether all are in use."""

from __future__ import annotations

import errno
import os
import resource
import sys

USED_UP = "this OS process has no file descriptor left: raise its limit (LimitNOFILE, ulimit -n)"

_ERRORS = (errno.EMFILE, errno.ENFILE)


def most() -> int:
    """Return the number of descriptors that this OS process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def are_used_up() -> bool:
    """Return whether the OS refuses another descriptor just now, to this process or to all."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _ERRORS
    return False
