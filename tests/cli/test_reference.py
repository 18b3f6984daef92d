"""The page about the command is what the command says about itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from headwater.cli import records
from headwater.cli.main import COMMANDS, app

ROOT = Path(__file__).parent.parent.parent


def below(name: str) -> set[str]:
    """The command of a name, or those of its group."""
    root: Any = typer.main.get_command(app)
    command = root.get_command(typer.Context(root), name)
    return {f"{name} {sub}" for sub in getattr(command, "commands", ())} or {name}


def test_every_command_with_json_says_what_it_writes() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"\n## headwater ([a-z ]+)\n(.*?)(?=\n## |\Z)", page, re.DOTALL))
    names = {name for commands in COMMANDS.values() for one in commands for name in below(one)}
    assert names == set(sections)
    with_json = {name for name, text in sections.items() if "| `--json` |" in text}
    assert with_json == set(records.BY_COMMAND)
    assert all("`--json` writes" in sections[name] for name in with_json)


def test_nothing_is_said_about_where_it_was_made() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert str(Path.home()) not in page
    assert str(ROOT) not in page
