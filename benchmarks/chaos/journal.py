"""A client's own record of what it asked and what it was answered: lines of JSON, synced to the disk.

Rule: an intention is on the disk before it is carried out, an answer before the client acts on it. A line
that its writer did not live to finish says nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """All complete records."""
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


class Journal:
    """Appends; concurrent records share one sync."""

    def __init__(self, path: Path) -> None:
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = asyncio.Lock()
        self._unwritten = b"\n" if torn else b""

    async def add(self, **record: Any) -> None:
        """Return when the record is on the disk."""
        self._unwritten += json.dumps(record).encode() + b"\n"
        async with self._lock:
            # Empty if who held the lock before took this record along.
            if self._unwritten:
                data, self._unwritten = self._unwritten, b""
                await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)
