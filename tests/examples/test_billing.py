"""The small examples run as they stand, again and again, and print what their pages say."""

from __future__ import annotations

from types import ModuleType

import pytest

from examples import billing, subscription
from tests.docs.pages import ROOT, blocks


@pytest.mark.parametrize(("example", "page"), [(subscription, "README.md"), (billing, "docs/example.md")])
async def test_the_example_runs_again_and_again(
    example: ModuleType, page: str, dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cleans up behind itself, so that its next run prints the same."""
    for _ in range(2):
        await example.main(dsn)
        assert capsys.readouterr().out in [block.code for block in blocks(ROOT / page, "text")]
