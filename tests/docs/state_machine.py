"""The tables of `transitions.py`, as the page of the state machine shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from progressor.model import Disposition, ProcessStatus, TaskType
from progressor.transitions import BROKEN_IN_INIT, EFFECTS, RUNS_IN, TABLE, VERBS, End, Ending, Rule

_REMOVED = "removed"
_NOWHERE = "[*]"
_ORDER = [_NOWHERE, *ProcessStatus, _REMOVED]

Edge = tuple[str, str, str]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def diagram() -> str:
    """Every change of a status as a Mermaid state diagram."""
    edges = sorted([*_of_verbs(), *_of_steps()], key=lambda edge: tuple(map(_ORDER.index, edge[:2])))
    lines = [f"    {source} --> {target} : {label}" for source, target, label in edges]
    return "\n".join(["stateDiagram-v2", *lines, f"    {_REMOVED} --> {_NOWHERE}"]) + "\n"


def _of_verbs() -> Iterator[Edge]:
    for verb, change in VERBS.items():
        for found in change.found:
            for becomes in change.becomes:
                yield found or _NOWHERE, becomes or _REMOVED, verb


def _of_steps() -> Iterator[Edge]:
    """Task types that share status, ending and rule share their edges."""
    alike: dict[tuple[ProcessStatus, Ending, str], list[TaskType]] = {}
    rules = dict[str, Rule]()
    for (task_type, ending), rule in (*TABLE.items(), *BROKEN_IN_INIT.items()):
        alike.setdefault((RUNS_IN[task_type], ending, rule.name), []).append(task_type)
        rules[rule.name] = rule
    drawn = set[Edge]()
    for (source, ending, name), task_types in alike.items():
        by_target: dict[str, list[Disposition]] = {}
        for end in rules[name].ends.values():
            by_target.setdefault(_after(end) or source, []).append(end.disposition)
        for target, dispositions in by_target.items():
            edge = (
                source,
                target,
                f"{', '.join(task_types)} / {ending} / {', '.join(dict.fromkeys(dispositions))}",
            )
            # Removed by a repair is removed, whatever broke it.
            if edge not in drawn:
                drawn.add(edge)
                yield edge


def _after(end: End) -> str | None:
    """None: it stays as it was."""
    return _REMOVED if end.disposition is Disposition.REMOVE else end.status


def steps() -> str:
    """`TABLE`: task types by endings."""
    rules = {task_type: [_rule_at(task_type, ending) for ending in Ending] for task_type in TaskType}
    return table(
        ["Task", "Runs in", *Ending],
        [
            [
                f"`{task_type}`",
                RUNS_IN[task_type],
                *row,
            ]
            for task_type, row in rules.items()
        ],
    )


def _rule_at(task_type: TaskType, ending: Ending) -> str:
    key = task_type, ending
    if key not in TABLE:
        return "-"
    anew = BROKEN_IN_INIT.get(key)
    return TABLE[key].name + (f"; broken in init: {anew.name}" if anew else "")


def rules() -> str:
    """The rules that stand in `TABLE` and `BROKEN_IN_INIT`, one line an end."""
    return table(
        ["The process", "Case", "Disposition", "Status after"],
        [
            [rule.name, case, f"`{end.disposition}`", _after(end) or "as it was"]
            for rule in dict.fromkeys([*TABLE.values(), *BROKEN_IN_INIT.values()])
            for case, end in rule.ends.items()
        ],
    )


def verbs() -> str:
    """`VERBS`."""
    return table(
        ["Verb", "Status before", "Status after", "As"],
        [
            [
                f"`{verb}`",
                " or ".join(status or "none" for status in change.found),
                " or ".join(status or _REMOVED for status in change.becomes),
                f"`{change.disposition}`" if change.disposition else "",
            ]
            for verb, change in VERBS.items()
        ],
    )


def effects() -> str:
    """`EFFECTS`."""
    return table(
        ["Disposition", "The task", "The timer", "The mailbox"],
        [
            [f"`{disposition}`", *(effect.value for effect in effects)]
            for disposition, effects in EFFECTS.items()
        ],
    )
