"""Metadata as JSON: what PostgreSQL makes of a number is the number that was given."""

from __future__ import annotations

import pytest

from progressor.storage import params


@pytest.mark.parametrize("plus", ["+", ""])
def test_large_floats_are_written_with_a_point(monkeypatch: pytest.MonkeyPatch, plus: str) -> None:
    """Whichever way the JSON library writes an exponent; texts and small numbers are left alone."""
    written = f'{{"a":1e{plus}16,"b":[-1.5e{plus}20,1e-9],"c":"1e{plus}16","d \\\\":"\\"1e{plus}16"}}'
    monkeypatch.setattr(params, "to_json", lambda value: written.encode())
    assert params.json_text({"a": 1}) == (
        '{"a":10000000000000000.0,"b":[-150000000000000000000.0,1e-9],'
        f'"c":"1e{plus}16","d \\\\":"\\"1e{plus}16"}}'
    )
