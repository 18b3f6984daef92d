"""The commands of shell snippets, as far as tests need to understand them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer.main

from headwater.cli.main import app
from tests.docs.markdown import Block

PROGRAMS = ("headwater", ".venv/bin/headwater")
_PREFIX = re.compile(r"\w+=.*|do|then|if|while|until|!|exec|time|\{")


def commands(block: Block) -> Iterator[list[str]]:
    """Each call of `headwater` in a block, split into words."""
    text = block.text.replace("\\\n", " ")
    # What is done inside "$(…)" is a command as well.
    inner = re.findall(r"\$\(([^()]*)\)", text)
    for part in (*inner, re.sub(r'"?\$\([^()]*\)"?', "substituted", text)):
        for line in part.splitlines():
            yield from _of_line(line)


def _of_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        # A string of several lines, in the middle of which this one is.
        return
    simple: list[str] = []
    for word in (*words, ";"):
        if set(word) <= set("|&;()<>"):
            yield from _of_simple(simple)
            simple = []
        elif simple or not _PREFIX.fullmatch(word):
            simple.append(word)


def _of_simple(words: list[str]) -> Iterator[list[str]]:
    if not words:
        return
    if words[0] == "xargs" and "headwater" in words:
        # One more word comes through the pipe.
        yield [*words[words.index("headwater") + 1 :], "piped"]
    elif words[0] in PROGRAMS and len(words) > 1:
        yield words[1:]


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def check(words: list[str]) -> None:
    """Fail unless the command line takes these words: command, options, arguments, choices."""
    said = f"headwater {shlex.join(words)}"
    command, rest = _root(), list(words)
    while hasattr(command, "get_command"):
        rest = _parsed(command, rest)[1]
        assert rest, f"{said} names no command"
        command = command.get_command(typer.Context(command), rest.pop(0))
        assert command is not None, f"{said}: there is no such command"
    values, rest = _parsed(command, rest)
    assert not rest, f"{said}: nothing takes {rest}"
    context = typer.Context(command)
    for parameter in command.params:
        given = values.get(parameter.name)
        is_argument = parameter.param_type_name == "argument"
        assert given or not (is_argument and parameter.required), f"{said} lacks an argument"
        if isinstance(given, str):
            try:
                parameter.process_value(context, given)
            except Exception as error:
                # No such choice, or not a number. Files of a reader need not be here.
                if "does not exist" not in str(error):
                    raise AssertionError(f"{said}: {error}") from error


def _parsed(command: Any, words: list[str]) -> tuple[dict[str, Any], list[str]]:
    context = typer.Context(command, **command.context_settings)
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    return values, list(rest)
