"""The head of a statement names its parts, its parameters have types, its fragments are shared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from progressor.storage import statements
from progressor.storage.doctor import checks
from progressor.storage.statements import FRAGMENTS, STATEMENTS

_PART = re.compile(r"^(?:WITH )?(\w+) AS (?:MATERIALIZED )?\($", re.MULTILINE)
_ON_THE_MAP = re.compile(r"^--   (\w+(?:, \w+)*),?(?:  .*)?$", re.MULTILINE)
_MOST_WITHOUT_A_MAP = 5
_CHECKS = Path(checks.__path__[0])


def files() -> list[Path]:
    return list(Path(statements.__path__[0]).rglob("*.sql"))


def parts(name: str) -> list[str]:
    return _PART.findall(STATEMENTS[name])


def mapped(name: str) -> list[str]:
    top = STATEMENTS[name].partition("WITH ")[0]
    return [part for line in _ON_THE_MAP.findall(top) for part in line.split(", ")]


@pytest.mark.parametrize(
    "name", [name for name in STATEMENTS if len(parts(name)) > _MOST_WITHOUT_A_MAP or mapped(name)]
)
def test_a_long_statement_has_a_map_of_its_parts(name: str) -> None:
    """Each part once, in their order."""
    assert mapped(name) == parts(name)


def test_each_file_has_a_name_of_its_own() -> None:
    """In whichever folder it stands: a statement is known by it."""
    names = [path.stem for path in files() if path.parent.name != "fragments"]
    variants = ("_timeless", "_one_timer", "_rated", "_pausing", "_feeding", "_newest")
    # It is sent as a variant for each of its orders alone.
    orders = {"browse_created", "browse_broken", "browse_due"}
    assert orders <= STATEMENTS.keys()
    known = [name for name in STATEMENTS.keys() - orders if not name.endswith(variants)]
    assert sorted(names) == sorted([*known, "browse"])


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_is_of_two_statements_at_least(name: str) -> None:
    """Otherwise its text belongs into the statement, where it is read."""
    include = re.compile(rf"^ *-- include {name}$", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in (*files(), *_CHECKS.glob("*.sql"))]
    assert sum(len(include.findall(text)) for text in texts) > 1


def test_no_include_is_left_in_a_statement() -> None:
    """However it is written: a line that is not quite one would be sent as a comment."""
    assert [name for name, sql in STATEMENTS.items() if re.search(r"--\s*include\b", sql)] == []


def test_the_longest_are_among_them() -> None:
    """So that the test sees what it looks for."""
    assert len(parts("save_result")) > 10


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_parameter_is_cast(name: str) -> None:
    """Its type stands nowhere else: values travel without one."""
    assert re.findall(r"%\(\w+\)s(?!::\w)", STATEMENTS[name]) == []


def test_parameters_of_one_name_have_one_type() -> None:
    """Where they are columns: what encodes one does not know for which statement it is."""
    types: dict[str, set[str]] = {}
    for sql in STATEMENTS.values():
        for name, kind in re.findall(r"%\((\w+)\)s::(\w+\[\])", sql):
            types.setdefault(name, set()).add(kind)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}
    assert types["event_metadata"] == {"jsonb[]"}
