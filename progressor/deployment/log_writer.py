"""Log lines on their way to a stream that may take none: they are held, up to a bound, and then dropped.

Rule: who logs never waits. A thread writes; a stream that nobody reads stops that thread and nothing else.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from typing import TextIO

from progressor import metrics
from progressor.loggers import Logger

log = Logger("progressor.logs")

# Of lines that wait to be written.
_MOST_BYTES = 4 << 20
_FLUSH_SECONDS = 2.0
_LOOKS_SECONDS = 0.005


class LogWriter(logging.Handler):
    """Writes each line at once, in a thread that begins with the first one."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._dropped = 0
        try:
            self._descriptor = stream.fileno()
        except OSError:
            self._descriptor = -1
        self._begin()

    def _begin(self) -> None:
        # A process that was forked has none of the threads of its parent.
        self._pid = os.getpid()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Each is changed by one side alone: whoever logs holds the handler's lock.
        self._taken = self._written = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written; count it if it finds no room."""
        try:
            text = self.format(record) + "\n"
            if self._descriptor < 0:
                # No file, so nothing that could keep anybody waiting.
                self.stream.write(text)
                self.stream.flush()
                return
            line = text.encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as every handler of logging does
            self.handleError(record)
            return
        if self._pid != os.getpid():
            self._begin()
        if self._taken - self._written > _MOST_BYTES:
            self._drop()
            return
        self._taken += len(line)
        self._lines.put(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progressor logs", daemon=True)
            self._thread.start()

    def _drop(self) -> None:
        self._dropped += 1
        metrics.LOG_LINES_DROPPED.inc()

    def _run(self) -> None:
        told = 0
        while True:
            line = self._lines.get()
            try:
                self._write(line)
            except OSError:
                # Nobody reads it any more, or it is closed.
                self._drop()
                told = self._dropped
            self._written += len(line)
            if self._dropped > told:
                lines, told = self._dropped - told, self._dropped
                log.warning("log lines dropped, for nobody took them", extra={"lines": lines})

    def _write(self, line: bytes) -> None:
        # Not through the stream's buffer: its lock would be held while the write blocks, also at the end of
        # the interpreter, which flushes it.
        while line:
            line = line[os.write(self._descriptor, line) :]

    def flush(self) -> None:
        """Wait until all is written that was logged before, for two seconds at most."""
        until, wanted = time.monotonic() + _FLUSH_SECONDS, self._taken
        while self._written < wanted and time.monotonic() < until and self._pid == os.getpid():
            time.sleep(_LOOKS_SECONDS)
