"""The pool of sync handlers: bounded, lazy, and never in the way of the exit."""

import subprocess
import sys
import threading

from progressor.threads import DaemonThreads


def test_the_pool_is_bounded_and_starts_threads_only_when_needed() -> None:
    """Work beyond the limit waits; an idle thread is used again."""
    pool, release = DaemonThreads(2), threading.Event()
    waiting = [pool.submit(release.wait, 5) for _ in range(3)]
    assert not waiting[2].running()
    release.set()
    assert [each.result(5) for each in waiting] == [True] * 3
    names = {pool.submit(lambda: threading.current_thread().name).result(5) for _ in range(9)}
    assert len(names) <= 2


def test_work_that_was_cancelled_before_it_began_is_skipped() -> None:
    """A step that timed out in the queue is not run later."""
    pool, release, ran = DaemonThreads(1), threading.Event(), threading.Event()
    first = pool.submit(release.wait, 5)
    second = pool.submit(ran.set)
    assert second.cancel()
    release.set()
    first.result(5)
    pool.submit(lambda: None).result(5)
    assert not ran.is_set()


def test_a_pool_grows_but_never_shrinks() -> None:
    """A second namespace may ask for more threads, never for fewer."""
    pool, together = DaemonThreads(1), threading.Barrier(2, timeout=5)
    pool.grow_to(2)
    pool.grow_to(1)
    both = [pool.submit(together.wait) for _ in range(2)]
    assert sorted(each.result(5) for each in both) == [0, 1]


def test_a_blocked_thread_does_not_keep_the_process_alive() -> None:
    """Python exits although a handler blocks for ever."""
    code = (
        "import threading; from progressor.threads import DaemonThreads; "
        "begun = threading.Event(); "
        "DaemonThreads(1).submit(lambda: (begun.set(), threading.Event().wait())); "
        "begun.wait(); print('left')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "left\n"
