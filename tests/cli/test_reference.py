"""The page about the command is what the command says about itself."""

from __future__ import annotations

import re
from pathlib import Path

from headwater.cli import records
from headwater.cli.main import COMMANDS

GROUP_COMMANDS = ("ls", "info", "lag", "create", "seek", "pause", "resume", "rm")
SUBSCRIPTION_COMMANDS = ("create", "ls", "info", "add", "drop", "claim", "keys", "rm")
ROOT = Path(__file__).parent.parent.parent


def test_every_command_with_json_says_what_it_writes() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"\n## headwater ([a-z ]+)\n(.*?)(?=\n## |\Z)", page, re.DOTALL))
    names = {
        name
        for commands in COMMANDS.values()
        for name, place in commands.items()
        if not place.endswith(":app")
    }
    names |= {f"ctx {name}" for name in ("add", "use", "ls", "rm")}
    names |= {f"pipeline {name}" for name in ("run", "replay", "status", "ls")}
    names |= {f"group {name}" for name in GROUP_COMMANDS}
    names |= {f"cluster {name}" for name in ("init", "status", "drain")}
    names |= {f"keys {name}" for name in ("create", "ls", "revoke")}
    names |= {f"postgres {name}" for name in ("follow", "setup", "status", "drop")}
    names |= {f"subscription {name}" for name in SUBSCRIPTION_COMMANDS}
    names |= {f"snapshot {name}" for name in ("ls", "get", "put", "rm")}
    names |= {f"live {name}" for name in ("profile", "status", "activate", "wait")}
    names |= {f"doc {name}" for name in ("create", "show", "rm")}
    names |= {f"response {name}" for name in ("read", "abort", "rm")}
    names |= {f"segments {name}" for name in ("ls", "verify", "compact", "sweep")}
    assert names == set(sections)
    with_json = {name for name, text in sections.items() if "| `--json` |" in text}
    assert with_json == set(records.BY_COMMAND)
    assert all("`--json` writes" in sections[name] for name in with_json)


def test_nothing_is_said_about_where_it_was_made() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert str(Path.home()) not in page
    assert str(ROOT) not in page
