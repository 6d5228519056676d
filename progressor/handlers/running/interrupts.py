"""Errors that a signal raised in code of a handler, told apart from those that the handler itself raises.

Rule: the first are for those who run the program, the second are errors of the handler.
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
    """Return whether a signal raised the KeyboardInterrupt or SystemExit that is being handled.

    Python runs the functions that handle signals in the main thread alone. Under its own one for SIGINT
    every KeyboardInterrupt there counts as Ctrl-C.
    """
    if current_thread() is not main_thread():
        return False
    # Not of the error, whose class may be the user's.
    kind, _, trace = sys.exc_info()
    codes = {frame.f_code for frame, _ in walk_tb(trace)}
    if function_in_thread.__code__ in codes:
        return False
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        on_signals = [signal.getsignal(signal.SIGINT)]
        if on_signals[0] is signal.default_int_handler:
            return True
    else:
        on_signals = [signal.getsignal(each) for each in signal.valid_signals()]
    return any(_code_of(each) in codes for each in on_signals)


def _code_of(on_signal: Any) -> Any:
    """Return the code of the function that handles a signal; None if it has none."""
    while isinstance(on_signal, partial):
        on_signal = on_signal.func
    return getattr(on_signal, "__code__", None)
