"""The threads of sync handlers: at once, used again, and never in the way of the exit."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from progressor.handlers.running.threads import NoThread, Threads, run_in_thread


def test_work_begins_at_once() -> None:
    """However many functions block, the next one has a thread."""
    threads, together = Threads(), threading.Barrier(50, timeout=20)
    waiting = [threads.submit(together.wait) for _ in range(50)]
    assert sorted(each.result(20) for each in waiting) == list(range(50))


def test_an_idle_thread_is_used_again() -> None:
    """Functions that run one after the other share a thread, and what belongs to it."""
    threads = Threads()
    idents = {threads.submit(threading.get_ident).result(20) for _ in range(50)}
    assert len(idents) == 1


def test_a_thread_that_is_idle_for_long_ends() -> None:
    """Threads of a busy hour do not stay for ever; the next function gets a new one."""
    threads = Threads(idle=0.001)
    first = threads.submit(threading.current_thread).result(20)
    first.join(20)
    assert not first.is_alive()
    assert threads.submit(threading.current_thread).result(20) is not first


def test_no_work_is_lost_to_a_thread_that_is_about_to_end() -> None:
    """A function that is handed to a thread in the moment in which its patience ends, runs."""
    threads = Threads(idle=0.0)
    assert [threads.submit(lambda number=number: number).result(20) for number in range(500)] == list(
        range(500)
    )


def test_an_error_belongs_to_who_waits() -> None:
    """Whatever a function raises is its result; the thread goes on."""
    threads = Threads()

    def fail() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration

    with pytest.raises(SystemExit):
        threads.submit(fail).result(20)
    with pytest.raises(RuntimeError, match="StopIteration"):
        threads.submit(stop).result(20)
    assert threads.submit(lambda: "on").result(20) == "on"


def test_work_that_was_cancelled_before_it_began_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that starts late does not run what was given up meanwhile."""
    begin: list[Callable[[], None]] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda self: begin.append(self.run))
        threads, ran = Threads(idle=0.001), []
        future = threads.submit(ran.append, 1)
    assert future.cancel()
    begin[0]()
    assert ran == []


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the operating system gives no more threads the function did not begin, and that is said."""
    threads = Threads()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoThread, match="can't start new thread"):
            threads.submit(print)
    assert threads.submit(lambda: "again").result(20) == "again"


def test_a_blocked_thread_does_not_keep_the_process_alive() -> None:
    """Python exits although a handler blocks for ever."""
    code = (
        "import threading; from progressor.handlers.running.threads import Threads; "
        "begun = threading.Event(); "
        "Threads().submit(lambda: (begun.set(), threading.Event().wait())); "
        "begun.wait(); print('left')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "left\n"


async def test_a_forked_child_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for an idle one of its parent, whoever forks: its pid is another one."""
    first = await run_in_thread(threading.get_ident)
    assert await run_in_thread(threading.get_ident) == first
    monkeypatch.setattr(os, "getpid", lambda: 0)
    assert await run_in_thread(threading.get_ident) != first
