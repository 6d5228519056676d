"""Keeps the processes of a run alive: what dies is started again, as a deployment would do.

Rule: it ends only what it started, by its process object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_RESTART = (0.05, 0.5)
# Wrong by a week, a day, an hour, seconds; right most rarely.
SKEWS = (-604_800.0, 86_400.0, -3_600.0, 3_600.0, -7.0, 45.0, 0.0)


class Member:
    """One process that is kept alive."""

    def __init__(
        self,
        name: str,
        role: str,
        dsn: str,
        *,
        home: Path,
        seed: int,
        defect: str | None,
        skewed: bool = False,
        module: str = "benchmarks.chaos.child",
        **options: Any,
    ) -> None:
        self.name, self.role = name, role
        self.deaths = self.starts = 0
        self.skews: list[float] = []
        self.stopped = False
        self.journal = home / f"{name}.jsonl"
        self._told = home / f"{name}.stop"
        self._log = home / f"{name}.log"
        self._spec = {"role": role, "name": name, "dsn": dsn, "seed": seed, "defect": defect, **options}
        self._module = module
        self._skewed = skewed
        self._random = random.Random(f"{seed} {name}")
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._retired = False

    def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            skew = self._random.choice(SKEWS) if self._skewed else 0.0
            self.skews.append(skew)
            files = {"journal": str(self.journal), "told": str(self._told)}
            spec: dict[str, Any] = {**self._spec, **files, "skew": skew}
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    self._module,
                    json.dumps(spec),
                    cwd=_ROOT,
                    stdin=asyncio.subprocess.DEVNULL,
                    stderr=log,
                )
            self.starts += 1
            status = await self._process.wait()
            self.stopped = False
            if self._retired and status == 0:
                return
            self.deaths += 1
            await asyncio.sleep(self._random.uniform(*_RESTART))

    def send(self, sign: signal.Signals) -> bool:
        """Send a signal; False if the process is not there just now."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(sign)
            return True
        return False

    def freeze(self) -> bool:
        """SIGSTOP."""
        self.stopped = not self.stopped and self.send(signal.SIGSTOP)
        return self.stopped

    def thaw(self) -> None:
        """SIGCONT."""
        self.stopped = False
        self.send(signal.SIGCONT)

    async def retire(self, *, seconds: float) -> bool:
        """Tell it to end in order; False if it had to be killed."""
        self._retired = True
        self.thaw()
        # A file, so that a successor that is just being started is told too.
        self._told.touch()
        if self._keeping is not None:
            await asyncio.wait({self._keeping}, timeout=seconds)
        in_order = self._keeping is None or self._keeping.done()
        await self.kill()
        return in_order

    async def kill(self) -> None:
        """End it for good, at once."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self.send(signal.SIGKILL) and self._process is not None:
            await self._process.wait()

    def last_words(self, lines: int = 12) -> list[str]:
        """The end of its log."""
        if not self._log.exists():
            return []
        return self._log.read_text(errors="replace").splitlines()[-lines:]
