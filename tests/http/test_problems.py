"""Every error has its kind of problem."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from progressor import errors
from progressor.http.wire.problems import OF_HTTP, TABLE

# A client alone raises it, over an answer that it got.
OF_CLIENTS = {errors.InvalidAnswer}


def _tree(of: type[errors.ProgressorError]) -> Iterator[type[errors.ProgressorError]]:
    yield of
    for each in of.__subclasses__():
        yield from _tree(each)


@pytest.mark.parametrize(
    "error",
    [
        each
        for each in _tree(errors.ProgressorError)
        if each.__name__ in errors.__all__ and each not in OF_CLIENTS
    ],
    ids=lambda each: each.__name__,
)
def test_every_error_stands_in_the_table(error: type[errors.ProgressorError]) -> None:
    """Each class of the tree has a kind of its own."""
    assert error in TABLE


def test_types_are_unique() -> None:
    """Clients tell problems apart by their types."""
    types = [kind.type for kind in (*TABLE.values(), *OF_HTTP)]
    assert len(set(types)) == len(types)
