"""Nonsense for every option and argument of every command: one clear line, never a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from typer.testing import CliRunner

from headwater.cli.main import app

# Those that would start something, or look at a place that nonsense can name.
STARTERS: Final = frozenset({"serve", "up", "demo", "bench", "top", "consume"})
PLACES: Final = frozenset({"pipeline", "copy", "restore", "segments", "backup", "verify", "doctor"})
NONSENSE: Final = ("", "nonsense", "-1", "9" * 23, "\u2603/../x", "\udcff", "a\nb")
SERVER: Final = frozenset({"url", "token", "context", "ca"})


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in command.list_commands(typer.Context(command)):
        found = command.get_command(typer.Context(command), name)
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        elif path[:1] != ("postgres",) and (*path, name)[0] not in STARTERS | PLACES:
            yield (*path, name), found


def lines_of(path: tuple[str, ...], command: Any) -> Iterator[list[str]]:
    """Command lines with one thing that makes no sense."""
    quiet = ["--no-follow"] if path == ("tail",) else []
    required = [p for p in command.params if p.param_type_name == "argument" and p.required]
    for option in command.params:
        if option.param_type_name != "option" or option.is_flag or option.name in SERVER:
            continue
        for value in NONSENSE:
            yield [*path, *quiet, *["x" for _ in required], f"{max(option.opts, key=len)}={value}"]
    if any(p.param_type_name == "argument" for p in command.params):
        for value in NONSENSE:
            yield [*path, *quiet, *[value for _ in (required or [None])]]


ALL: Final = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", sorted(ALL), ids=" ".join)
def test_nonsense_is_one_clear_line(
    path: tuple[str, ...],
    environment: dict[str, str | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in lines_of(path, ALL[path]):
        result = CliRunner().invoke(app, words, input="", env=environment)
        said = f"{words} → {result.exit_code}\n{result.stderr}"
        assert "Traceback" not in result.stderr, said
        assert "unexpected" not in result.stderr, said
        # Any text may be the name or description of something; what has no meaning is refused.
        assert 0 <= result.exit_code <= 6, said
        if result.exit_code:
            assert len(result.stderr.splitlines()) == 1, said
            assert result.stderr.startswith("headwater: "), said


@pytest.mark.parametrize("path", sorted(ALL), ids=" ".join)
def test_an_option_that_there_is_not_is_named(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--nonsense"], env={"COLUMNS": "40"})
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "--nonsense" in line or "Missing argument" in line
    assert "--help" in line


@pytest.mark.parametrize("path", sorted(ALL), ids=" ".join)
def test_help_is_readable_on_a_narrow_terminal(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "40", "NO_COLOR": "1"})
    assert result.exit_code == 0
    assert "Usage: headwater" in " ".join(result.stdout.split())


@pytest.mark.parametrize("path", sorted(ALL), ids=" ".join)
def test_help_cuts_no_name_at_80_columns(path: tuple[str, ...]) -> None:
    flags = ["--help", "--help-all"] if path in (("serve",), ("up",)) else ["--help"]
    for flag in flags:
        shown = CliRunner().invoke(app, [*path, flag], env={"COLUMNS": "80", "NO_COLOR": "1"})
        assert shown.exit_code == 0
        assert max(map(len, shown.stdout.splitlines())) <= 80
        assert not re.search(r"--[a-z-]+…", shown.stdout)
