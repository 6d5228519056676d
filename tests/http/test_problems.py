"""Every error has its kind of problem."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from progressor import errors
from progressor.http.wire import problems
from progressor.http.wire.problems import TABLE

# No API answers with these: a client raises one over an answer that it got, an engine one as it begins
# or ends.
ELSEWHERE = {errors.InvalidAnswer, errors.LifespanFailed}


def _tree(of: type[errors.ProgressorError]) -> Iterator[type[errors.ProgressorError]]:
    yield of
    for each in of.__subclasses__():
        yield from _tree(each)


@pytest.mark.parametrize(
    "error",
    [
        each
        for each in _tree(errors.ProgressorError)
        if each.__name__ in errors.__all__ and each not in ELSEWHERE
    ],
    ids=lambda each: each.__name__,
)
def test_every_error_stands_in_the_table(error: type[errors.ProgressorError]) -> None:
    """Each class of the tree has a kind of its own."""
    assert error in TABLE


def test_types_are_unique() -> None:
    """Clients tell problems apart by their types."""
    of_http = [each for each in vars(problems).values() if isinstance(each, problems.Kind)]
    types = [kind.type for kind in (*TABLE.values(), *of_http)]
    assert len(set(types)) == len(types)
