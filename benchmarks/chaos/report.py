"""The report of a run, as JSON and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.recovery import Recovery

_SHOWN = 5
# Where this checkout lies is nobody's business.
_HERE = f"{Path(__file__).resolve().parents[2]}/"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check: what must hold, and what contradicts it."""

    name: str
    rule: str
    findings: Sequence[str]


@dataclass
class Report:
    """All that is to be said of a run."""

    seconds: float
    seed: int
    defect: str | None
    verdicts: list[Verdict]
    recoveries: list[Recovery]
    figures: Mapping[str, Any]
    last_words: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return sum(recovery.count for recovery in self.recoveries)

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts anything."""
        return not any(verdict.findings for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {"faults": self.faults, "holds": self.holds, **asdict(self)}

    def markdown(self) -> str:
        """For a reader."""
        broken = f", with the defect `{self.defect}` built in" if self.defect else ""
        ends = "everything holds" if self.holds else "**it does not hold**"
        lines = [
            f"# Chaos: {self.faults} faults in {self.seconds:.0f} s{broken}: {ends}\n",
            f"Seed {self.seed}. "
            + ", ".join(f"{name}: {value}" for name, value in self.figures.items())
            + ".\n",
            "| check | contradictions |",
            "|---|--:|",
            *(f"| {v.name}: {_in_line(v.rule)} | {_count(v.findings)} |" for v in self.verdicts),
            "",
        ]
        for verdict in self.verdicts:
            lines += [f"- {verdict.name}: {text}" for text in verdict.findings[:_SHOWN]]
            if len(verdict.findings) > _SHOWN:
                lines.append(f"- {verdict.name}: and {len(verdict.findings) - _SHOWN} more")
        lines += [
            "\nSeconds from a fault to the end of the next step, and to that of all that was under way:\n",
            "| fault | count | next step p50 | max | all under way p50 | max |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {r.kind} | {r.count} | {r.next_p50:.3f} | {r.next_max:.3f} | {r.all_p50:.2f} "
            f"| {r.all_max:.2f} |"
            for r in self.recoveries
        ]
        for name, words in self.last_words.items():
            shown = [line.replace(_HERE, "") for line in words]
            lines += [f"\nThe end of the log of {name}:\n", "```", *shown, "```"]
        return "\n".join(lines) + "\n"


def _count(findings: Sequence[str]) -> str:
    return f"**{len(findings)}**" if findings else "0"


def _in_line(text: str) -> str:
    return " ".join(text.split())


def counted(names: Sequence[str]) -> str:
    """Names with how often they occur."""
    return ", ".join(f"{count} {name}" for name, count in sorted(Counter(names).items()))
