"""Values of a command line: what a text stands for."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from progressor.cli.values import read_filter, read_object


@pytest.mark.parametrize(
    ("text", "stands_for"),
    [
        ("customer=17", {"customer": 17}),
        ("customer=acme", {"customer": "acme"}),
        ('customer="17"', {"customer": "17"}),
        ("paid=true", {"paid": True}),
        ("since=2026-02-28", {"since": "2026-02-28"}),
        ("formula=a=b", {"formula": "a=b"}),
        ("note=", {"note": ""}),
        ("rate=NaN", {"rate": "NaN"}),
        ("file=@/etc/hostname", {"file": "@/etc/hostname"}),
        ('tags={"a": [1]}', {"tags": {"a": [1]}}),
        ('{"a=b": 1}', {"a=b": 1}),
        (None, None),
    ],
)
def test_a_pair_is_an_object_of_one_member(text: str | None, stands_for: dict[str, Any] | None) -> None:
    """Its value is JSON, or else the text itself; a JSON object is read as it is."""
    assert read_object(text, "--metadata") == stands_for


@pytest.mark.parametrize("text", ["17", "[1]", "=17", "a b=1", "customer:ann", ""])
def test_what_is_no_object_is_refused(text: str) -> None:
    """Also a pair whose key needs JSON to be written."""
    with pytest.raises(typer.BadParameter, match="it must be key=value, or a JSON object"):
        read_object(text, "--metadata")


def test_a_filter_is_all_that_is_given() -> None:
    """A repeated option adds to the first, and never takes its place."""
    assert read_filter(["customer=17", '{"country": "de"}'], "--metadata") == {
        "customer": 17,
        "country": "de",
    }
    assert read_filter([], "--metadata") is None
    assert read_filter(["null"], "--metadata") == {}
    with pytest.raises(typer.BadParameter, match="customer is given twice"):
        read_filter(["customer=17", "customer=18"], "--metadata")
