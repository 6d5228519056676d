"""Links between pages lead somewhere, and shell lines name commands that there are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from progressor.cli.main import app
from tests import postgres
from tests.docs.pages import ROOT, blocks, name_of, pages
from tests.docs.test_code import _execute_all, _served

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PICTURE = re.compile(r'(?:src|srcset)="([^"]+)"')
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    """To files that exist, and to headings that they have."""
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert ROOT in target.parents, link
        if anchor:
            assert anchor in _anchors(target), link


def test_every_picture_is_shown() -> None:
    """Pages show pictures that are there, and there is none that no page shows."""
    shown = set()
    for page in pages():
        for name in _PICTURE.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / name).resolve()
            assert path.stat().st_size, name
            shown.add(path.name)
    assert shown == {each.name for each in (ROOT / "docs" / "pictures").iterdir()}


def _anchors(page: Path) -> set[str]:
    """As the usual renderers make them of headings."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)
    }


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_table_is_whole(page: Path) -> None:
    """Every row stands below the head of its table: behind an empty line it would be text with bars."""
    for table in re.split(r"\n(?!\|)", _FENCED.sub("", page.read_text(encoding="utf-8"))):
        lines = table.split("\n")
        rows = lines if lines[0].startswith("|") else lines[1:]
        if rows:
            assert len(rows) > 1, rows
            assert re.fullmatch(r"\|[ :|-]+\|", rows[1]), rows[0]


def test_every_page_is_in_the_index() -> None:
    """From docs/README.md each page can be reached, the decisions through their own index."""
    for folder in (ROOT / "docs", ROOT / "docs/explanation/decisions"):
        index = (folder / "README.md").read_text(encoding="utf-8")
        linked = {(folder / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
        listed = set(folder.rglob("*.md")) - {folder / "README.md"}
        if folder.name == "docs":
            listed = {page for page in listed if "decisions" not in page.parts}
        assert listed <= linked


def _shell_lines() -> list[tuple[str, list[str]]]:
    """The commands `progressor …` of all pages."""
    found = []
    for page in pages():
        for block in blocks(page, "sh"):
            for line in block.code.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["progressor"]:
                    found.append((name_of(page), words[1:]))
    return found


@pytest.mark.parametrize(("page", "words"), _shell_lines(), ids=lambda value: " ".join(value)[:40])
def test_shell_lines_are_understood(page: str, words: list[str]) -> None:
    """Each line with --help behind it succeeds: the command and its options exist."""
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output


_FILES = {"served": "garage.py", "script": "drive.py", "test": "test_garage.py"}


def _run(page: Path, folder: Path, *command: str, **variables: str) -> str:
    """What a command prints beside the files of the page."""
    for block in blocks(page, "python"):
        if block.note in _FILES:
            (folder / _FILES[block.note]).write_text(block.code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=postgres.environment_of_a_run(PYTHONPATH=f"{ROOT}:{folder}", **variables),
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=True,
    ).stdout


def test_the_test_of_the_tutorial_passes(server: str, tmp_path: Path) -> None:
    """A day and a year of its car park pass in a moment."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    said = _run(ROOT / "docs/tutorial.md", tmp_path, *command, PROGRESSOR_TEST_DATABASE_URL=server)
    assert "1 passed" in said


def test_the_tutorial_does_what_it_says(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its shell lines and its program run on its own code; refusals are those that it announces."""
    page = ROOT / "docs/tutorial.md"
    module = _execute_all([block for block in blocks(page, "python") if block.runs], dsn)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    said = []
    with _served(module, dsn):
        for name, words in _shell_lines():
            if name == "docs/tutorial.md" and words[0] != "dev":
                result = CliRunner().invoke(app, words)
                said.append((result.exit_code, " ".join(words), result.output))
        drive = _run(page, tmp_path, _FILES["script"])
    assert [line.partition(":")[0] for line in drive.splitlines()] == ["owed", "refused", "leaving", "paid"]
    refused = [(words, output) for status, words, output in said if status]
    assert {status for status, _, _ in said} == {0, 1, 2}
    expected = [
        ('call garage.stay car-1 pay {"amount": -3}', "amount must be positive"),
        ("call garage.stay car-1 park", "no call named 'park'"),
        ('call garage.stay car-2 pay {"amount": 3}', "KeyError: 'weekend'"),
        ("call garage.stay car-2 leave", "is broken: KeyError: 'weekend'"),
    ]
    # Whether the car owes anything when it first wants to leave depends on how much time has passed.
    refused = [each for each in refused if each[0] != "call garage.stay car-1 leave"]
    assert [words for words, _ in refused] == [words for words, _ in expected]
    assert all(says in output for (_, output), (_, says) in zip(refused, expected, strict=True))
