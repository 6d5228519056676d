"""Is a history linearizable: is there one order of its operations that explains every answer?

The search of Wing and Gong, with Lowe's memory: an operation may come next if none that is left was
answered before it was called. A state that was reached by the same operations before is not searched again.
An operation without an answer may come at any moment after its call, or never.

Rule: pure. It knows nothing of HTTP, processes or PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.linearizability.histories import Operation

State = Hashable
# The states that may follow: one, or none if the operation cannot have been answered so.
Model = Callable[[Any, Operation], tuple[State, ...]]


def register(state: int | None, operation: Operation) -> tuple[State, ...]:
    """A register: read, write, and compare-and-set, whose answer is whether it was set."""
    value = operation.value
    match operation.verb:
        case "read":
            return (state,) if state == operation.answer else ()
        case "write":
            return (value,)
        case "cas":
            expected, new = value
            if operation.is_known and operation.answer != (state == expected):
                return ()
            return (new if state == expected else state,)
        case _:
            raise ValueError(f"a register has no {operation.verb}")


def grow_only_set(state: frozenset[int] | None, operation: Operation) -> tuple[State, ...]:
    """A set: add one element, read all."""
    elements = state or frozenset()
    match operation.verb:
        case "read":
            # Compared as it came, in the object's order: an answer of another shape is a stranger's.
            answer = [] if operation.answer is None else operation.answer
            return (elements,) if answer == sorted(elements) else ()
        case "add":
            return (elements | {operation.value},)
        case _:
            raise ValueError(f"a set has no {operation.verb}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether an order was found; if not, an operation that fits behind none of the longest orders."""

    is_linearizable: bool
    misfit: Operation | None = None


def judge(model: Model, history: Sequence[Operation]) -> Judgement:
    """Judge the operations on one object, which begins as None."""
    # Without an answer a read says nothing, and changes nothing.
    return _Search(model, [o for o in history if o.is_known or o.verb != "read"]).judgement()


class _Search:
    """Calls and answers in the order of time, as a list from which they are taken out and put back."""

    def __init__(self, model: Model, history: Sequence[Operation]) -> None:
        self._model = model
        self._history = history
        calls = [(operation.called, 0, number) for number, operation in enumerate(history)]
        answers = [
            (operation.answered, 1, number)
            for number, operation in enumerate(history)
            if operation.answered is not None
        ]
        # At one moment a call comes before an answer: then they overlap.
        moments = sorted([*calls, *answers])
        self._operation_of = [number for _, _, number in moments]
        self._is_call = [kind == 0 for _, kind, _ in moments]
        self._answer_of = {number: place for place, (_, kind, number) in enumerate(moments) if kind == 1}
        self._head = len(moments)
        self._next = [*range(1, len(moments) + 1), 0]
        self._previous = [self._head, *range(len(moments))]
        self._known_left = len(answers)

    def judgement(self) -> Judgement:
        """Search until all that was answered has its place, or no order is left."""
        state: State = None
        placed, seen, path = 0, {(0, state)}, list[tuple[int, State]]()
        deepest, misfit = -1, None
        place = self._next[self._head]
        while self._known_left:
            number = self._operation_of[place] if place != self._head else None
            if number is not None and self._is_call[place]:
                following = self._model(state, self._history[number])
                reached = (placed | 1 << number, following[0]) if following else None
                if reached is None or reached in seen:
                    place = self._next[place]
                    continue
                seen.add(reached)
                path.append((place, state))
                placed, state = reached
                self._take_out(place)
                place = self._next[self._head]
                continue
            # This one was answered before any other could come next.
            if len(path) > deepest and number is not None:
                deepest, misfit = len(path), self._history[number]
            if not path:
                return Judgement(False, misfit)
            place, state = path.pop()
            placed ^= 1 << self._operation_of[place]
            self._put_back(place)
            place = self._next[place]
        return Judgement(True)

    def _take_out(self, call: int) -> None:
        answer = self._answer_of.get(self._operation_of[call])
        for place in (call,) if answer is None else (call, answer):
            self._next[self._previous[place]] = self._next[place]
            self._previous[self._next[place]] = self._previous[place]
        self._known_left -= answer is not None

    def _put_back(self, call: int) -> None:
        answer = self._answer_of.get(self._operation_of[call])
        # In the reverse order: each finds the neighbours that it had.
        for place in (call,) if answer is None else (answer, call):
            self._next[self._previous[place]] = place
            self._previous[self._next[place]] = place
        self._known_left += answer is not None
