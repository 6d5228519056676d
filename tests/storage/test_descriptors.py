"""File descriptors that are used up are not taken for a database that is away."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.storage.queries.reads import Reads


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take all descriptors that this OS process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    taken = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_error_and_the_log_name_the_descriptors(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And PostgreSQL is not said to be away; it is found again once there are descriptors."""
    # The loop's thread for look-ups exists before.
    await asyncio.to_thread(os.getpid)
    reads = Reads(dsn, patience=timedelta(seconds=0.2))
    with no_descriptors(), pytest.raises(StorageUnavailable, match="no file descriptor left"):
        await reads.process("x", "y")
    assert await reads.process("x", "y") is None
    await reads.close()
    said = [message_of(each) for each in caplog.records if each.levelname == "WARNING"]
    assert said == ["no file descriptor left for PostgreSQL"]
