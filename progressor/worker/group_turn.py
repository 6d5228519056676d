"""Turns around the groups of a namespace: where a claim looks next for tasks that wait for room.

Rule: a claim looks at so many groups, not at all, so that full ones hold up nobody. A turn that is not over
goes on with the next claim. It is over once every group was looked at while slots were left. A group in
which a step of this worker has ended is asked without a turn.
"""

from __future__ import annotations

from collections.abc import Sequence


class GroupTurn:
    """The turn of one worker; `after` is the group behind which the next look begins."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.is_over = False
        # Where the turn began, and whether it has come to the end of all groups since.
        self._first, self._has_wrapped = after, False
        # In the order in which steps have ended there.
        self._left: dict[int, None] = {}

    def begin(self) -> None:
        """Begin a turn anew, where the last one has come to."""
        self._first, self._has_wrapped, self.is_over = self.after, False, False

    def went(self, last: int | None) -> None:
        """Go on behind the group `last`; None: all behind the last look were looked at."""
        self.after = last or 0
        if last is None:
            # The second time it has come around, though the group where it began is not there any more.
            self.is_over = self._has_wrapped or self._first == 0
            self._has_wrapped = True
        else:
            self.is_over = self._has_wrapped and last >= self._first

    def broke_off(self, served: int) -> None:
        """Go on behind the group that was served last: no slot or no room for values was left."""
        self.after = served
        self.begin()

    def leave(self, group_no: int) -> None:
        """Note that a step has ended in a group."""
        self._left[group_no] = None

    def left(self, most: int) -> Sequence[int]:
        """Return the groups in which steps have ended, up to `most`, by their numbers."""
        return sorted(group_no for group_no, _ in zip(self._left, range(most), strict=False))

    def took(self, group_nos: Sequence[int]) -> None:
        """Forget that steps have ended in these groups: what waits there was claimed."""
        for group_no in group_nos:
            self._left.pop(group_no, None)
