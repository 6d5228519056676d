"""Everything is restarted while it is used over HTTP; `python -m benchmarks.rolling` is the long form."""

from __future__ import annotations

from benchmarks.rolling import roll
from tests.cli.conftest import NO_EMBEDDED


async def test_nothing_is_lost_or_done_twice(dsn: str) -> None:
    """Workers and APIs are replaced one after the other, a scanner is killed: each is answered once."""
    result = await roll(dsn, 50, at_once=2, variables=NO_EMBEDDED)
    assert result.wrong == []
    assert len(result.calls) >= 50
    assert result.rolled == [
        "worker 1 replaced",
        "worker 2 replaced",
        "scanner killed",
        "API 1 replaced",
        "API 2 replaced",
    ]
    assert "none was done twice" in result.report()
