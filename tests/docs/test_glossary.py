"""The glossary has every word of the model, and each of them once."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

import progressor
from progressor import ProgressorError, model, transitions
from progressor.storage import values
from progressor.storage.schema import metadata
from tests.docs.pages import read

_ENTRY = re.compile(r"^- (.+?)(?=^- |^\n|\Z)", re.MULTILINE | re.DOTALL)


def _entries() -> list[str]:
    return _ENTRY.findall(read("docs/glossary.md"))


def _terms() -> list[str]:
    """All that is set in bold: what an entry is about, and what it defines beside."""
    return [term.strip("`") for entry in _entries() for term in re.findall(r"\*\*([^*]+)\*\*", entry)]


def _classes() -> Iterator[type]:
    """What the engine's values are, from a request to its decision."""
    for module in (model, transitions, values):
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_":
                yield value


def test_every_class_of_the_model_has_an_entry() -> None:
    """Under its own name, be it beside another one."""
    assert {kind.__name__ for kind in _classes()} - {*_terms()} == set()


def test_every_public_name_has_an_entry() -> None:
    """The errors have a page of their own."""
    public = {
        name
        for name in progressor.__all__
        if name != "__version__" and not _is_error(getattr(progressor, name))
    }
    assert public - {*_terms()} == set()


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, ProgressorError)


def test_every_value_of_an_enum_stands_with_it() -> None:
    """Types, statuses, dispositions, reasons."""
    enums = [kind for kind in _classes() if issubclass(kind, StrEnum)]
    assert enums
    for kind in enums:
        (entry,) = [entry for entry in _entries() if entry.startswith(f"**{kind.__name__}**")]
        assert {f"`{value}`" for value in kind} <= {*re.findall(r"`[^`]+`", entry)}, kind.__name__


def test_every_table_has_an_entry() -> None:
    """By its name in SQL."""
    assert {table.name for table in metadata.sorted_tables} - {*_terms()} == set()


def test_no_word_is_defined_twice() -> None:
    """A noun and the verb or table of its name are told apart by how they are written."""
    defined = Counter(term for entry in _entries() for term in re.findall(r"\*\*([^*]+)\*\*", entry))
    assert [term for term, times in defined.items() if times > 1] == []
