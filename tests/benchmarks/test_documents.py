"""The tables of the documentation are written anew without touching what stands around them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks import documents
from benchmarks.contestants import PEERS, targets
from progressor.bench.cases import OWN, BenchCase
from progressor.bench.samples import Results
from tests.docs.pages import ROOT

FACTS = {
    "cores": 2,
    "load": 0.1,
    "server_version": "18.0",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "python": "3.11",
    "machine": "Linux",
    "tree": "2026-01-02 (abcdef0)",
    "repeats": 1,
}


def of_a_run() -> Results:
    """Two cases of the engine, of which the other systems have one."""
    cases = [BenchCase("", "chain-1", "chain", {}, contestant=name) for name in (OWN, *PEERS)]
    samples = {case.key: [{"rate": 1000.0 + place}] for place, case in enumerate(cases)}
    cases.append(BenchCase("", "call-1", "call", {}))
    samples["call-1 progressor"] = [{"rate": 7.0, "p50_ms": 2.5}]
    return Results(FACTS, cases, samples)


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    for page in (documents.SHORT, documents.WHOLE):
        (tmp_path / page).parent.mkdir()
        shutil.copy(ROOT / "docs" / page, tmp_path / page)
    return tmp_path


def _split(page: Path) -> list[str]:
    return re.split(
        "(?<=<!-- figures: begin -->)|(?=<!-- figures: end -->)", page.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("page", [documents.SHORT, documents.WHOLE], ids=str)
def test_only_what_stands_between_the_markers_changes(copies: Path, page: Path) -> None:
    """And it says of which tree it is."""
    before, old, after = _split(copies / page)
    documents.update(copies, of_a_run(), targets(of_a_run()))
    left, new, right = _split(copies / page)
    assert (left, right) == (before, after)
    assert new != old
    assert "The tree of 2026-01-02 (abcdef0)." in new


def test_a_row_has_each_system_in_a_column(copies: Path) -> None:
    """What was not measured, or what a system does not have, is left empty."""
    documents.update(copies, of_a_run(), [])
    page = (copies / documents.SHORT).read_text(encoding="utf-8")
    rates = " | ".join(f"1,00{number}/s" for number in range(len(PEERS) + 1))
    assert f"| timer steps, one process | {rates} |\n" in page
    assert "| calls, one client | 7/s, p50 2.50 ms |  |  |  |  |  |\n" in page
    assert "| starts, one client |  |  |  |  |  |  |\n" in page


def test_the_rates_of_the_short_table_are_those_of_the_whole() -> None:
    """Both pages show one run."""
    _, short, _ = _split(ROOT / "docs" / documents.SHORT)
    _, whole, _ = _split(ROOT / "docs" / documents.WHOLE)
    assert short.split("\n\n")[1] == whole.split("\n\n")[1]
    assert re.findall(r"[\d,]+/s", short)
    for rate in re.findall(r"[\d,]+/s", short):
        assert f"| {rate} |" in whole


def test_a_page_without_a_place_is_named(copies: Path) -> None:
    """Rather than that the tables get lost."""
    (copies / documents.SHORT).write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match=r"performance\.md has no place"):
        documents.update(copies, of_a_run(), [])
