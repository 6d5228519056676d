"""The billing example runs as it stands, again and again, and prints what README says."""

from __future__ import annotations

import pytest

from examples import billing
from tests.docs.pages import ROOT, blocks


async def test_the_example_runs_again_and_again(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        await billing.main(dsn)
        assert capsys.readouterr().out in [block.code for block in blocks(ROOT / "README.md", "text")]
