"""The link of a child and its supervisor: a pair of unnamed sockets, and the code of both ends.

Over it the supervisor asks for health and metrics, and stops the child. No other OS process can use it, and
it leaves no file behind. Rule: if the link ends, the supervisor has gone. Then the child finishes its steps
and leaves, or leaves at once if the supervisor had stopped it before.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Self, assert_never

from progressor import metrics
from progressor.deployment import logs
from progressor.deployment.health import Ask, Liveness, ServiceHealth, lives
from progressor.deployment.merged_metrics import Figures
from progressor.loggers import Logger
from progressor.outages import cause_of
from progressor.supervision import keep_thread, watched

log = Logger("progressor.link")

# The variable with a child's number, the file descriptor of its link, and those of the shared sockets.
VARIABLE = "_PROGRESSOR_CHILD"

# Bytes; the limit of a line, which holds one answer.
_MOST_BYTES = 1 << 26
_LAST_WORDS_SECONDS = 1.0
# Seconds; less than the supervisor waits for it, which is less than its own callers wait.
_HEALTH_SECONDS = 1.5
# A set event, for threads that do not begin again after a failure.
_ONCE = threading.Event()
_ONCE.set()


def is_child() -> bool:
    """Return whether a supervisor started this OS process; False once the link is taken."""
    return VARIABLE in os.environ


class Question(StrEnum):
    """The questions of a supervisor: a line of JSON `[number, question]`, answered `[number, answer]`."""

    HEALTH = "health"
    LIFE = "life"
    METRICS = "metrics"
    STOP = "stop"


# The number of a child's news, which answer no question.
UNASKED = 0


class News(StrEnum):
    """The news of a child: it serves; it has done its share, and serves until another takes its place."""

    SERVES = "serves"
    SPENT = "spent"


class Link(ServiceHealth):
    """The child's end of the link, which answers in a thread of its own. `number` is that of the child.

    `descriptors` are those of the sockets that it shares with the other children.
    """

    def __init__(self, number: int, descriptor: int, descriptors: Sequence[int] = ()) -> None:
        super().__init__(_HEALTH_SECONDS)
        self.number = number
        self.descriptors = descriptors
        self._socket = socket.socket(fileno=descriptor)
        # Made once, so that a thread that begins again loses no line.
        self._lines = self._socket.makefile()
        self._sending = threading.Lock()
        self._stopping = False
        # The link is made in the main thread, where Python handles signals; a signal must wake it.
        self._main_thread = threading.get_ident()
        keep_thread("link", self._listen, until=threading.Event())

    @classmethod
    def inherited(cls) -> Self | None:
        """Take the link from the environment of this OS process; its own children do not inherit it."""
        given = os.environ.pop(VARIABLE, None)
        if given is None:
            return None
        number, *descriptors = map(int, given.split(":"))
        for each in descriptors:
            os.set_inheritable(each, False)
        return cls(number, descriptors[0], descriptors[1:])

    def watch(self, ask: Ask, alive: Callable[[], Awaitable[Liveness]] = lives) -> None:
        super().watch(ask, alive)
        self._send_apart(UNASKED, lambda: News.SERVES)

    def spent(self) -> None:
        """Ask the supervisor for another child in its place; this one serves until that one does."""
        self._send_apart(UNASKED, lambda: News.SPENT)

    def _listen(self) -> None:
        try:
            for line in self._lines:
                number, question = json.loads(line)
                self._answer(number, Question(question))
        except ConnectionError as error:
            log.debug("link lost", extra={"cause": cause_of(error)})
        self._end()

    def _answer(self, number: int, question: Question) -> None:
        match question:
            case Question.HEALTH:
                self._send_apart(number, lambda: asdict(self.health()))
            case Question.LIFE:
                self._send_apart(number, lambda: self.life()._asdict())
            case Question.METRICS:
                self._send(number, metrics.families())
            case Question.STOP:
                self._stop()
            case _:
                assert_never(question)

    def _send_apart(self, number: int, answer: Callable[[], Any]) -> None:
        # An answer on health may wait for a database that is away; one on liveness must not wait behind it.
        # And the event loop, which has news, must not wait for a supervisor that reads nothing.
        keep_thread("link", lambda: self._send(number, answer()), until=_ONCE)

    def _send(self, number: int, answer: Any) -> None:
        try:
            with self._sending:
                self._socket.sendall(json.dumps([number, answer]).encode() + b"\n")
        except ConnectionError as error:
            # The thread that listens notices the end of the link.
            log.debug("nobody listens", extra={"cause": cause_of(error)})

    def _stop(self) -> None:
        """Send SIGTERM to the main thread, whether or not the command runs already."""
        self._stopping = True
        signal.pthread_kill(self._main_thread, signal.SIGTERM)

    def _end(self) -> None:
        if self._stopping:
            logs.flush()
            os._exit(128 + signal.SIGTERM)
        log.warning("supervisor gone, finishing steps")
        self._stop()


class Child:
    """The supervisor's end of the link, and the child's OS process. `figures` are its last metrics.

    After `stop`, or the end of its link, the child is killed if it has not ended within `patience` seconds:
    one that hangs in C cannot bound its own stop.
    """

    def __init__(
        self,
        number: int,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        patience: float,
    ) -> None:
        self.number = number
        self.process = process
        self.serves = False
        self.is_spent = False
        self.leaves = False
        self.figures: Figures = ()
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(UNASKED + 1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._over = asyncio.Event()
        self._patience = patience
        self._overdue: asyncio.TimerHandle | None = None

    @classmethod
    async def started(cls, number: int, patience: float, shared: Sequence[socket.socket]) -> Self:
        """Start the present command once more as this child, with the sockets that all children share."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = [each.fileno() for each in (theirs, *shared)]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *sys.orig_argv[1:],
                stdin=DEVNULL,
                pass_fds=descriptors,
                env=os.environ | {VARIABLE: ":".join(map(str, [number, *descriptors]))},
                start_new_session=True,
            )
        ends = await asyncio.open_unix_connection(sock=ours, limit=_MOST_BYTES)
        return cls(number, process, *ends, patience)

    async def listen(self, on_news: Callable[[Self, News], None]) -> None:
        """Read the child's answers until the link ends; call `on_news` with its news."""
        try:
            async for line in self._reader:
                number, answer = json.loads(line)
                if number == UNASKED:
                    on_news(self, News(answer))
                else:
                    self._answered(number, answer)
        except ConnectionError as error:
            log.debug("link lost", extra={"cause": cause_of(error)})
        finally:
            self._over.set()
            self._writer.close()
            self._expect_end()
            for number in list(self._asked):
                self._answered(number, None)

    def _answered(self, number: int, answer: Any) -> None:
        question = self._asked.pop(number, None)
        # The answer may come too late: then nobody waits for it.
        if question is not None and not question.done():
            question.set_result(answer)

    async def ask(self, question: Question, patience: float) -> Any | None:
        """Ask the child, and return its answer; None if none comes within `patience` seconds."""
        if self._writer.is_closing():
            return None
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._tell(number, question)
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    def stop(self) -> None:
        """Let the child finish its steps and leave."""
        self._tell(next(self._numbers), Question.STOP)
        self._expect_end()

    def _expect_end(self) -> None:
        if not self.leaves:
            self.leaves = True
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(self._patience, watched("child", self._end_it))

    def _end_it(self) -> None:
        if self.process.returncode is None:
            facts = {"child": self.number, "pid": self.process.pid, "after_seconds": self._patience}
            log.error("child does not leave, killing it", extra=facts)
            self.kill()

    def kill(self) -> None:
        """Kill the child at once."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def _tell(self, number: int, question: Question) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps([number, question]).encode() + b"\n")

    async def ended(self) -> int:
        """Wait for its end and its last lines; return the exit status, or its signal's number below 0."""
        status = await self.process.wait()
        # A process that the child forked may keep a copy of its end of the link open: wait no longer.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._over.wait()
        self._writer.close()
        if self._overdue is not None:
            self._overdue.cancel()
        return status
