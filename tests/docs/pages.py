"""The pages of the documentation, and the code in them.

A fenced block may have a comment on the line above it:
`<!-- served -->`        an engine serves this block's namespaces until the end of the page,
`<!-- script -->`        the block is a program of its own, which a test runs as one,
`<!-- test -->`          the block is a file of tests, which pytest runs,
`<!-- examples/… -->`    the block is all of that file,
`<!-- not run: why -->`  the block is not executed, and the page says why.

A function `async def test_…(progressor_world)` of a block that is executed is run too, after all blocks.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the line on which its code begins."""

    page: Path
    line: int
    language: str
    code: str
    note: str

    @property
    def runs(self) -> bool:
        return self.note not in {"script", "test"} and not self.note.startswith("not run: ")


def pages() -> list[Path]:
    """Every page that a user reads."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page, text.count("\n", 0, found.start("code")) + 1, language, found["code"], found["note"] or ""
        )
        for found in _FENCE.finditer(text)
        if found["language"] == language
    ]


def marked(name: str, mark: str) -> str:
    """What stands on a page between `<!-- begin: mark -->` and `<!-- end: mark -->`."""
    return read(name).partition(f"<!-- begin: {mark} -->\n")[2].partition(f"<!-- end: {mark} -->")[0]


def steps(name: str, language: str) -> list[str]:
    """The code of all fences of a page, those within lists too."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", read(name), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(each) for each in found]
