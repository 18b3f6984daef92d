"""The Markdown of the documentation, as far as tests need to understand it.

Comments, which readers do not see, say what a test does with the code block after them:

    <!-- run -->                  run this block, and the next one when it has ended
    <!-- run in background -->    start this block and go on at once
    <!-- run until shown -->      run this block again and again until it prints what is expected
    <!-- file: NAME -->           save this block under this name, after what is there
    <!-- output -->               the block before this one prints these lines, in this order
    <!-- expect: some text -->    the block before this comment prints this text

A block of output may leave lines out, and `…` in a line stands for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial.md"
HTTP_REFERENCE = DOCS / "reference" / "http.md"
GROUPS_REFERENCE = DOCS / "reference" / "groups.md"
LIVE_REFERENCE = DOCS / "reference" / "live.md"
SUBSCRIPTIONS_REFERENCE = DOCS / "reference" / "subscriptions.md"
CONFIGURATION = DOCS / "reference" / "configuration.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(
    r"^<!-- (run in background|run until shown|run|output|file: .+?|expect: .+?) -->$", re.MULTILINE
)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
_CODE_SPAN = re.compile(r"`[^`\n]+`")


@dataclass
class Block:
    """A fenced block of code, with what the comments around it say."""

    language: str
    text: str
    line: int
    run: bool = False
    background: bool = False
    repeated: bool = False
    file: str = ""
    expected: list[re.Pattern[str]] = field(default_factory=list)
    """What its output holds, in this order."""

    def missing_from(self, output: str) -> str | None:
        """The first expectation that the output does not meet."""
        position = 0
        for pattern in self.expected:
            found = pattern.search(output, position)
            if found is None:
                return pattern.pattern
            position = found.end()
        return None


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        marks = [*_FENCE.finditer(self.text), *_COMMENT.finditer(self._prose)]
        blocks: list[Block] = []
        mode = ""
        for mark in sorted(marks, key=re.Match.start):
            line = self.text.count("\n", 0, mark.start()) + 1
            if mark.re is _COMMENT:
                mode = mark[1]
                if mode.startswith("expect: "):
                    assert blocks, f"{self.path}:{line}: no block before this expectation"
                    blocks[-1].expected.append(re.compile(re.escape(mode[len("expect: ") :])))
                    mode = ""
            elif mode == "output":
                assert blocks, f"{self.path}:{line}: no block before this output"
                blocks[-1].expected += _lines(mark[2])
                mode = ""
            else:
                block = Block(mark[1], mark[2], line, run=bool(mode))
                block.background = mode == "run in background"
                block.repeated = mode == "run until shown"
                block.file = mode.removeprefix("file: ") if mode.startswith("file: ") else ""
                blocks.append(block)
                mode = ""
        return blocks

    @cached_property
    def _prose(self) -> str:
        """The page with its code blanked out, so that nothing in there is taken for Markdown."""
        return _FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), self.text)

    def section(self, heading: str) -> str:
        """What stands below a heading, down to the next one of any level."""
        found = re.search(rf"^#+ {re.escape(heading)}$", self._prose, re.MULTILINE)
        assert found is not None, f"{self.path} has no section '{heading}'"
        following = _HEADING.search(self._prose, found.end())
        return self.text[found.end() : following.start() if following else None]

    def table(self, heading: str) -> list[list[str]]:
        """The first table below a heading: its rows without head, each a list of cells."""
        rows: list[list[str]] = []
        for line in self.section(heading).splitlines():
            if line.startswith("|"):
                rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
            elif rows:
                break
        assert len(rows) > 2, f"{self.path}: no table below '{heading}'"
        return rows[2:]

    @cached_property
    def links(self) -> list[str]:
        return _LINK.findall(_CODE_SPAN.sub("", self._prose))

    @cached_property
    def anchors(self) -> set[str]:
        """The names of the headings, made as GitHub makes them."""
        names = (heading.lower() for heading in _HEADING.findall(self._prose))
        return {re.sub(r"[^\w\- ]", "", name).strip().replace(" ", "-") for name in names}


def _lines(text: str) -> list[re.Pattern[str]]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    parts = [[re.escape(part) for part in line.split("…")] for line in lines]
    return [re.compile(rf"^\s*{'.*'.join(part)}\s*$", re.MULTILINE) for part in parts]


def code_spans(cell: str) -> list[str]:
    """What stands between backticks."""
    return [span.strip("`") for span in _CODE_SPAN.findall(cell)]
