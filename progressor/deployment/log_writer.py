"""The writer of log lines: if the stream takes none, it keeps them up to a bound, and then drops them.

Rule: code that logs never waits. A thread writes; a stream that nobody reads blocks that thread alone.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import time
from typing import TextIO

from progressor import metrics
from progressor.loggers import Logger

log = Logger("progressor.logs")

# Bytes of lines that wait to be written; further lines are dropped.
_MOST_BYTES = 4 << 20
_FLUSH_SECONDS = 2.0
_LOOKS_SECONDS = 0.005


class LogWriter(logging.Handler):
    """A logging handler that writes each line at once, in a thread that begins with the first line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._dropped = 0
        self._room = select.poll()
        try:
            self._descriptor = stream.fileno()
            self._room.register(self._descriptor, select.POLLOUT)
        except OSError:
            self._descriptor = -1
        self._begin()

    def _begin(self) -> None:
        # Called again after a fork: the child has none of its parent's threads.
        self._pid = os.getpid()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Bytes; only loggers, under the handler's lock, change the first, only the thread the second.
        self._taken = self._written = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record to the thread that writes; drop and count it if too many wait."""
        try:
            text = self.format(record) + "\n"
            if self._descriptor < 0:
                # The stream is no file, so a write to it cannot block.
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
        reported = 0
        while True:
            line = self._lines.get()
            try:
                self._write(line)
            except OSError:
                # The stream is closed, or its reader has gone.
                self._drop()
                reported = self._dropped
            self._written += len(line)
            if self._dropped > reported:
                lines, reported = self._dropped - reported, self._dropped
                log.warning("log lines dropped, for nobody took them", extra={"lines": lines})

    def _write(self, line: bytes) -> None:
        # Not through the stream's buffer: a write that blocks would hold its lock, also when the
        # interpreter flushes it at its end.
        while line:
            try:
                line = line[os.write(self._descriptor, line) :]
            except BlockingIOError:
                # Another process that shares the stream does not want to wait; this thread does.
                self._room.poll()

    def flush(self) -> None:
        """Wait until the lines logged so far are written, for two seconds at most."""
        until, wanted = time.monotonic() + _FLUSH_SECONDS, self._taken
        while self._written < wanted and time.monotonic() < until and self._pid == os.getpid():
            time.sleep(_LOOKS_SECONDS)
