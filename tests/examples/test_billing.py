"""The billing example runs as it stands and prints what README says."""

from __future__ import annotations

import pytest

from examples import billing

PRINTS = """\
balance: 100
asked again: 100
refused: amount must be positive
a month later: KeyError: 'platinum'
balance: 70
history: 1 opened, 2 paid, 3 plan corrected, 4 billed
"""


async def test_the_example_runs_again_and_again(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        await billing.main(dsn)
        assert capsys.readouterr().out == PRINTS
