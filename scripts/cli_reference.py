"""The page docs/reference/cli.md, from the command itself."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import typer.main

from headwater import contexts
from headwater.cli import records, server_options
from headwater.cli.exits import MEANINGS
from headwater.cli.main import app
from headwater.cli.positions import GRAMMAR, PLACES
from headwater.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 96
JSON_TYPES = {str: "text", int: "number", float: "number", bool: "true or false"}

INTRODUCTION = f"""\
# The `headwater` command

<!-- Written by make generate: do not edit. -->

Data goes to stdout, messages go to stderr. `headwater COMMAND --help` shows the same as this page.

{{commands}}

## Which server

Commands that talk to a server take these options, before or after the command's name:

{{server_options}}

The address is the first of: `--url`, `--context`, `${contexts.URL_VARIABLE}`, the context in
use, and `{contexts.DEFAULT_URL}`. The token is the first of: `--token`, the token of `--context`,
`${contexts.TOKEN_VARIABLES[0]}`, `${contexts.TOKEN_VARIABLES[1]}`, and the token of the context in
use if the address is that context's. So
the token of a context is never sent to another address. A token that has a space in it
(`Basic dXNlcjpwYXNz`) is sent as it is; any other is sent as a bearer token.

Contexts are kept in `~/.config/headwater/config.toml`, or in the file that
`${contexts.CONFIG_VARIABLE}` names. `$HEADWATER_DEBUG=1` shows where an unexpected
error came from.

## Where to begin

`--from` (and `--at` of `fork`) take: {GRAMMAR}.

- `-10` counts messages in a JSON stream, lines in a text stream and bytes in any other.
  So `-1` is the last one; the protocol's own `-1`, the beginning, is `start` here.
- `@1h` is a time ago, by the clock of this machine, in `ms`, `s`, `m`, `h`, `d` and `w`, which can
  be put together: `@1h30m`. A moment needs its time zone.
- An offset may have `/` and a number after it, as `next` in JSON output and the hint after Ctrl-C
  have: that many messages (bytes, unless it is a JSON stream) further on.

Groups start and continue (`--start`, `group seek`) at: {PLACES}. There, `-10` counts messages in
any stream; outside of JSON, each append is one. `first` is another word for `start`, and `latest`
for `now`.

On servers other than Headwater, the last ones are found by reading the stream from its start, and
times cannot be found.

## Exit codes

{{exit_codes}}

## JSON output

With `--json`, a command writes one record per line. Fields may be added in later versions; none is
taken away, renamed or given another meaning. Times are RFC 3339 in UTC. What the server says
nothing about is null. The fields are listed with each command.

## Shell completion

`headwater --install-completion` sets it up for the shell in use; `headwater completion SHELL`
writes the script. It completes commands, options, contexts, and the names of streams, for which it
asks the server (and waits half a second at most).
"""


SUMMARIES = Path(__file__).parent.parent / "src" / "headwater" / "cli" / "summaries.py"


def generate() -> dict[Path, str]:
    return {PAGE: page(), SUMMARIES: summaries()}


def summaries() -> str:
    """What shells show next to the names of commands, in a module that imports nothing else."""
    root: Any = typer.main.get_command(app)
    rows = {name: summary(root.get_command(None, name)) for name in root.list_commands(None)}
    lines = "".join(
        f"    {json.dumps(name)}: {json.dumps(text, ensure_ascii=False)},\n"
        for name, text in rows.items()
    )
    return (
        '"""One line for each command. Written by make generate: do not edit."""\n\n'
        f"SUMMARIES = {{\n{lines}}}\n"
    )


def page() -> str:
    """The text of the page."""
    root: Any = typer.main.get_command(app)
    commands = dict(walk(root))
    page = INTRODUCTION.format(
        commands=table(
            ("Command", "What it does"),
            [
                (f"[`{name}`](#headwater-{name.replace(' ', '-')})", summary(command))
                for name, command in commands.items()
            ],
        ),
        server_options=table(
            ("Option", "Meaning"),
            [option_row(p) for p in root.params if chooses_server(p)],
        ),
        exit_codes=table(
            ("Code", "Meaning"), [(str(int(code)), text) for code, text in MEANINGS.items()]
        ),
    )
    return page + "".join(section(name, command) for name, command in commands.items())


def walk(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by their full names, in help order."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from walk(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def summary(command: Any) -> str:
    first: str = inspect.cleandoc(command.help).partition("\n\n")[0]
    return " ".join(first.split())


def section(name: str, command: Any) -> str:
    shown = [p for p in command.params if not p.hidden and p.name != "help"]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option" and not chooses_server(p)]
    has_server = any(map(chooses_server, shown))
    usage = " ".join(["headwater", name, "[OPTIONS]", *map(usage_name, arguments)])
    parts = [f"\n## headwater {name}\n", *prose(command.help), f"```\n{usage}\n```\n"]
    if arguments:
        parts.append(
            table(("Argument", "Meaning"), [(f"`{p.metavar}`", p.help) for p in arguments])
        )
        parts.append("\n")
    if name in ("serve", "up"):
        # They have their own page.
        options = [p for p in options if p.name not in Settings.model_fields]
        parts.append("One option per setting: see [configuration](configuration.md).\n")
    if options:
        parts.append(table(("Option", "Meaning"), [option_row(p) for p in options]) + "\n")
    if has_server:
        parts.append("Also the options for [which server](#which-server).\n")
    for record in records.BY_COMMAND.get(name, ()):
        parts += record_parts("`--json` writes", record)
        parts += [p for part in records.PARTS.get(record, ()) for p in record_parts("In it", part)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part.strip())


def record_parts(label: str, record: type[records.Record]) -> list[str]:
    meaning = (record.__doc__ or "").strip()
    if not msgspec.structs.fields(record):
        return [f"{label}: {meaning[0].lower()}{meaning[1:]}\n"]
    rows = table(("Field", "Type", "Meaning"), record_rows(record))
    return [f"{label}: {meaning[0].lower()}{meaning[1:]}\n", rows]


def chooses_server(parameter: Any) -> bool:
    return bool(getattr(parameter, "rich_help_panel", None) == server_options.PANEL)


def usage_name(argument: Any) -> str:
    name: str = argument.metavar
    return name if argument.required else f"[{name}]"


def prose(text: str) -> Iterator[str]:
    """The help of a command: paragraphs rewrapped, examples as code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("  "):
            yield f"```sh\n{textwrap.dedent(paragraph)}\n```\n"
        elif paragraph != "Examples:":
            yield textwrap.fill(" ".join(paragraph.split()), WIDTH) + "\n"


def option_row(option: Any) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    if option.secondary_opts:
        names += " / " + ", ".join(f"`{name}`" for name in sorted(option.secondary_opts, key=len))
    value = option.metavar or value_name(option)
    help_text = " ".join(option.help.split())
    if option.show_default and option.default not in (None, False, ""):
        default = option.default
        if default is True:
            default = max(option.opts, key=len).lstrip("-")
        help_text += f" [default: {default}]"
    return f"{names} {value}".rstrip(), help_text


def value_name(option: Any) -> str:
    if option.is_flag:
        return ""
    choices = option.type_descriptor.choices
    if choices:
        return "`" + "`, `".join(map(str, choices)) + "`"
    kind = option.type_descriptor.annotation
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def record_rows(record: type[records.Record]) -> Iterator[tuple[str, str, str]]:
    hints = get_type_hints(record, include_extras=True)
    for field in msgspec.structs.fields(record):
        hint = hints[field.name]
        assert get_origin(hint) is Annotated, f"{record.__name__}.{field.name} has no description"
        kind, meta = get_args(hint)
        yield f"`{field.encode_name}`", json_type(kind), meta.description


def json_type(kind: Any) -> str:
    if kind is msgspec.Raw:
        return "any"
    if get_origin(kind) in (Union, UnionType):
        inner = [json_type(part) for part in get_args(kind) if part is not NoneType]
        return " or ".join([*inner, "null"])
    if get_origin(kind) is list:
        return "list of strings" if str in get_args(kind) else "list of objects"
    return JSON_TYPES.get(kind, "object")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines)


def escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit("run make generate, or python -m scripts.generate")
