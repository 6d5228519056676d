"""Ctrl-C in code of a handler, told apart from a KeyboardInterrupt that the handler itself raises.

Rule: the first is for those who run the worker, the second is an error of the handler.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from threading import current_thread, main_thread
from traceback import walk_tb
from typing import Any

from progressor.handlers.running.threads import function_in_thread


def is_of_signal() -> bool:
    """Return whether Ctrl-C raised the KeyboardInterrupt that is being handled.

    Python raises it in the main thread alone. Under Python's own SIGINT handler every one there counts as
    such.
    """
    if current_thread() is not main_thread():
        return False
    on_interrupt: Any = signal.getsignal(signal.SIGINT)
    while isinstance(on_interrupt, partial):
        on_interrupt = on_interrupt.func
    # Not of the error, whose class may be the user's.
    trace = sys.exc_info()[2]
    codes = {frame.f_code for frame, _ in walk_tb(trace)}
    if function_in_thread.__code__ in codes:
        return False
    return on_interrupt is signal.default_int_handler or getattr(on_interrupt, "__code__", None) in codes
