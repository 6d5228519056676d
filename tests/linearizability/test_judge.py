"""The judge itself: sound histories pass, wrong answers are found, and an oracle of all orders agrees."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, strategies as st

from benchmarks.linearizability.histories import Operation
from benchmarks.linearizability.judge import Model, grow_only_set, judge, register
from tests.model.profiles import profile


def op(verb: str, value: object, called: float, answered: float | None, answer: object = None) -> Operation:
    return Operation(verb, value, called, answered, answer)


def is_sound(model: Model, *history: Operation) -> bool:
    return judge(model, history).is_linearizable


def test_operations_in_turn() -> None:
    """Each sees what those before it did."""
    history = [
        op("read", None, 0, 1, None),
        op("write", 1, 2, 3),
        op("cas", (1, 2), 4, 5, True),
        op("cas", (1, 3), 6, 7, False),
        op("read", None, 8, 9, 2),
    ]
    assert is_sound(register, *history)


def test_overlapping_operations_may_come_in_any_order() -> None:
    """A read during a write sees it or not, and the order of two writes shows later."""
    write = op("write", 1, 0, 10)
    assert is_sound(register, write, op("read", None, 1, 2, 1))
    assert is_sound(register, write, op("read", None, 1, 2, None))
    assert is_sound(register, write, op("write", 2, 0, 10), op("read", None, 11, 12, 1))
    assert is_sound(register, write, op("write", 2, 0, 10), op("read", None, 11, 12, 2))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (op("read", None, 4, 5, 1), "it was overwritten before"),
        (op("read", None, 4, 5, 3), "nobody wrote it"),
        (op("read", None, 4, 5, None), "it was written before"),
        (op("cas", (1, 3), 4, 5, True), "it was not there any more"),
        (op("cas", (2, 3), 4, 5, False), "it was there"),
    ],
)
def test_a_wrong_answer_is_found(wrong: Operation, why: str) -> None:
    """One among any number of right ones."""
    right = [op("write", 1, 0, 1), op("write", 2, 2, 3), op("read", None, 4, 5, 2)]
    assert is_sound(register, *right)
    assert not is_sound(register, *right, wrong), why


def test_values_do_not_come_back() -> None:
    """Two reads during one write cannot see it come and go."""
    write = op("write", 1, 0, 10)
    assert not is_sound(register, write, op("read", None, 1, 2, 1), op("read", None, 3, 4, None))


def test_without_an_answer_an_operation_happened_later_or_never() -> None:
    """Its effect may show at any moment after its call, and not before it."""
    unknown = op("write", 1, 5, None)
    assert is_sound(register, unknown, op("read", None, 100, 101, 1))
    assert is_sound(register, unknown, op("read", None, 100, 101, None))
    assert is_sound(register, unknown, op("read", None, 6, 7, None), op("read", None, 100, 101, 1))
    assert not is_sound(register, unknown, op("read", None, 1, 2, 1))
    assert not is_sound(register, unknown, op("read", None, 6, 7, 1), op("read", None, 100, 101, None))


def test_an_added_element_stays() -> None:
    """A read has all that was added before it, perhaps what is being added, and nothing else."""
    history = [op("add", 1, 0, 1), op("add", 2, 2, None)]
    assert is_sound(grow_only_set, *history, op("read", None, 3, 4, [1]))
    assert is_sound(grow_only_set, *history, op("read", None, 3, 4, [1, 2]))
    assert not is_sound(grow_only_set, *history, op("read", None, 3, 4, [2]))
    assert not is_sound(grow_only_set, *history, op("read", None, 3, 4, [1, 3]))


@pytest.mark.parametrize("stranger", [0, 1, "1", True, {}, {"1": 1}, [[1]], [{}], ["1"], [1, 1]])
def test_an_answer_of_another_shape_fits_nowhere(stranger: object) -> None:
    """Whatever a stranger was answered is judged, not stumbled over."""
    read = op("read", None, 3, 4, stranger)
    assert not is_sound(grow_only_set, read)
    assert not is_sound(grow_only_set, op("add", 1, 0, 1), read)
    assert not is_sound(register, op("write", 2, 0, 1), read)


def test_the_misfit_is_named() -> None:
    """The operation that no order explains."""
    stale = op("read", None, 4, 5, 1)
    assert judge(register, [op("write", 1, 0, 1), op("write", 2, 2, 3), stale]).misfit == stale


def test_long_histories_are_judged() -> None:
    """Many overlapping operations, and many without an answer."""
    history = [op("write", number % 5, number, number + 4) for number in range(100)]
    history += [op("write", 9, number * 10, None) for number in range(4)]
    assert is_sound(register, *history, op("read", None, 400, 401, 9))
    assert not is_sound(register, *history, op("read", None, 400, 401, 8))


def oracle(model: Model, history: list[Operation]) -> bool:
    """Try every order of all known operations and some of the others."""
    known = [o for o in history if o.is_known]
    unknown = [o for o in history if not o.is_known and o.verb != "read"]
    return any(
        _explains(model, order)
        for count in range(len(unknown) + 1)
        for some in combinations(unknown, count)
        for order in permutations([*known, *some])
    )


def _explains(model: Model, order: tuple[Operation, ...]) -> bool:
    state: object = None
    for place, operation in enumerate(order):
        if any(o.answered is not None and o.answered < operation.called for o in order[place + 1 :]):
            return False
        following = model(state, operation)
        if not following:
            return False
        (state,) = following
    return True


MOMENTS = st.integers(0, 12)
VALUES = st.integers(0, 1)


@st.composite
def registers(draw: st.DrawFn) -> Operation:
    verb = draw(st.sampled_from(["read", "write", "cas"]))
    value = {"read": None, "write": draw(VALUES), "cas": (draw(VALUES), draw(VALUES))}[verb]
    answers = {"read": st.none() | VALUES, "write": st.none(), "cas": st.booleans()}
    return _timed(draw, verb, value, answers[verb])


@st.composite
def sets(draw: st.DrawFn) -> Operation:
    verb = draw(st.sampled_from(["read", "add"]))
    value = None if verb == "read" else draw(st.integers(0, 2))
    answers = {"read": st.sets(st.integers(0, 2)).map(sorted), "add": st.none()}
    return _timed(draw, verb, value, answers[verb])


def _timed(draw: st.DrawFn, verb: str, value: object, answers: st.SearchStrategy[object]) -> Operation:
    called = draw(MOMENTS)
    answered = draw(st.none() | st.integers(called, 13))
    return op(verb, value, called, answered, None if answered is None else draw(answers))


@profile(quick=300, deep=5000, steps=1)
@given(st.lists(registers(), max_size=5))
def test_the_oracle_agrees_on_registers(history: list[Operation]) -> None:
    """Whatever the history is."""
    assert judge(register, history).is_linearizable == oracle(register, history)


@profile(quick=300, deep=5000, steps=1)
@given(st.lists(sets(), max_size=5))
def test_the_oracle_agrees_on_sets(history: list[Operation]) -> None:
    """Whatever the history is."""
    assert judge(grow_only_set, history).is_linearizable == oracle(grow_only_set, history)
