"""A rule lives in one module, and the architecture page says in which one.

That a second copy of a rule turns up somewhere cannot be tested in general. But most rules have
something that no other code has a reason to write: a number, an expression, an error that only the
rule raises. Those are the signs below. A sign must be found where the rule lives, so that it does
not go stale, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
SOURCES: Final = ROOT / "src"
PAGE: Final = ROOT / "docs" / "architecture.md"
HEADING: Final = "### Where each rule lives"

# What betrays a rule, as `ast.unparse` writes it: without comments, in single quotes, digits plain.
SIGNS: Final[dict[str, tuple[str, ...]]] = {
    "What a decision is": (r"class \w*Decision\(",),
    "Content types": (
        r"partition\(';'\)\[0\]\.strip\(\)\.lower\(\)",
        r"\bmedia_type\(.*[!=]= .*\bmedia_type\(",
    ),
    "Whole numbers as text": (r"isdigit\(\) and \(?len\(",),
    "Producer fencing": (
        r"raise StaleEpoch\(",
        r"raise SequenceGap\(",
        r"raise EpochMustStartAtZero\(",
        r"\.epoch [<>=!]+ \w+\.epoch\b",
        r"\.seq <= \w+\.seq\b",
    ),
    "Offset format": (
        r":016d?\}_|zfill\(\w+\)\}_",
        r"\{16\}_|\{WIDTH\}\}\}_",
        r"\b10 \*\* WIDTH|\b10 \*\* 16\b",
        r"\b(offset|token|tail)s?(\[\w+\])?\[:",
    ),
    "Time to live": (r"\[1-9\]\[0-9\]\{0,10\}", r"touched_at_ms \+ .*ttl"),
    "Cursors": (r"\b1728432000\b",),
    "Sub-offsets": (r"raise InvalidFork\(",),
    "Unique ids": (r"raise MissingId\(",),
    "Redelivery": (r"max_deliveries\b.* <= ", r"deliveries \+ 1\b"),
    "Retention": (
        r"raise OffsetExpired\(",
        r"\btail - \w+\.size_bytes\b",
        r"\b1000 \* \(?\w+\.age_s\b",
    ),
    "State Protocol": (r"'snapshot-start'", r"'snapshot-end'", r"'upsert', 'delete'"),
    "What an append means": (r"pass at least one message or byte",),
    "Patterns": (r"\(\?>",),
    "Quotas": (r"raise QuotaExceeded\(",),
    "How nodes know each other": (r"headwater %b %d %b",),
    "Who owns a shard, who is gone": (r"sha256\(\w+\.encode\(\)\)\.digest\(\)\[:4\]",),
    "What time it is for all nodes": (r"clock_timestamp\(\)",),
    "What web pages may do": (r"'same-origin'",),
    "Where the server sends requests (SSRF)": (r"\.is_global\b", r"\.is_reserved\b"),
    "Durable responses": (r"'headwater response 1'", r"b'proxy-connection'"),
    "Live keys": (r"b'tbl\\x00'", r"'tpl'"),
    "Pipelines and their tables": (r"'_pipelines'",),
    "Orders to pipelines": (r"'pipelines/control'", r"\.do == 'pause'"),
    "Table names": (r"'~2E'",),
    "Fields as columns": (r"\bINTEGER \| LARGE_INTEGER",),
    "Framing of updates": (r"& 127\) <<", r"not whole updates"),
    "Addresses of documents": (r"_{SNAPSHOT}|'snapshots/|awareness/",),
    "When to compact a document": (r"\* written >=",),
    "Routes": (r"\bRoute\(",),
}

# Browsers keep to some rules before they ask. There is one script for each, and a test that holds
# it against the rule: `tests/browser/test_module.py`.
IN_BROWSERS: Final = {
    "State Protocol": ("js/folding.js", (r"\"snapshot-start\"", r"\"upsert\", \"delete\"")),
    "Live keys": ("js/keys.js", (r"\btbl\b", r"\btpl\b")),
}


def homes() -> dict[str, Path]:
    """Rules and their modules, from the table of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n{HEADING}\n")[2]
    table = section.partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) +\| `([^`|]+)` +\|", table, re.MULTILINE)
    return {rule: _module(path) for rule, path in rows}


def _module(path: str) -> Path:
    package = "" if path.startswith("pyspark_headwater/") else "headwater"
    return SOURCES / package / path


def modules_of(home: Path) -> list[Path]:
    return sorted(home.glob("**/*.py")) if home.is_dir() else [home]


@cache
def code(path: Path) -> str:
    """What a module does, without what it says about it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A string on its own is a docstring, or explains the line before it.
            kept = [s for s in node.body if not _is_text(s)]
            node.body = kept or [ast.Pass()]
    return ast.unparse(tree)


@cache
def script(path: Path) -> str:
    """The same of a script: comments are lines of their own there."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("//", "/*", "*")))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_every_rule_is_listed_once() -> None:
    assert set(homes()) == set(SIGNS)


@pytest.mark.parametrize("rule", sorted(SIGNS))
def test_its_module_exists_and_says_what_the_rule_is(rule: str) -> None:
    home = homes()[rule]
    assert home.exists(), f"{PAGE.name} names {home}"
    first = home / "__init__.py" if home.is_dir() else home
    stated = ast.get_docstring(ast.parse(first.read_text(encoding="utf-8"))) or ""
    assert len(stated) > 80, f"{first} begins with its rules in prose"


@pytest.mark.parametrize("rule", sorted(SIGNS))
def test_no_second_place_has_the_rule(rule: str) -> None:
    own = set(modules_of(homes()[rule]))
    for sign in SIGNS[rule]:
        found = {path for path in SOURCES.glob("**/*.py") if re.search(sign, code(path))}
        assert found & own, f"the sign {sign} has gone stale: {rule} does without it now"
        elsewhere = sorted(str(path.relative_to(SOURCES)) for path in found - own)
        assert elsewhere == [], f"{sign} belongs to {rule}, which lives in {sorted(own)}"


@pytest.mark.parametrize("rule", sorted(IN_BROWSERS))
def test_no_second_script_has_the_rule(rule: str) -> None:
    name, signs = IN_BROWSERS[rule]
    home = SOURCES / "headwater" / "http" / name
    for sign in signs:
        found = {path for path in SOURCES.glob("**/*.js") if re.search(sign, script(path))}
        assert found == {home}, f"{sign} belongs to {rule}, which scripts have in {name}"


def test_a_second_place_is_noticed(tmp_path: Path) -> None:
    """Comments and docstrings may mention a sign; code may not."""
    module = tmp_path / "copy.py"
    module.write_text('"""Not 1_728_432_000."""\n# 1728432000\nx = 1_728_432_000\n')
    assert re.findall(SIGNS["Cursors"][0], code(module)) == ["1728432000"]


@pytest.mark.parametrize(
    "package", sorted(SOURCES.glob("**/__init__.py")), ids=lambda path: path.parent.name
)
def test_a_package_that_lists_its_modules_lists_all_of_them(package: Path) -> None:
    said = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
    lists = re.findall(r"^(\w+|- `\w+`(?:, `\w+`)*)  +\S", said, re.MULTILINE)
    listed = sorted(name for line in lists for name in re.findall(r"\w+", line))
    modules = {path.stem for path in package.parent.glob("*.py")} - {"__init__"}
    assert listed in ([], sorted(modules))


def test_no_cancellation_is_swallowed() -> None:
    """On Python 3.11, `wait_for` forgets a cancellation that comes together with the result.

    Whoever cancelled then waits for ever. `asyncio.timeout` does not do that.
    """
    written = [*SOURCES.rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    assert [path for path in written if "asyncio.wait_for(" in path.read_text()] == []
