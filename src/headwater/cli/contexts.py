"""`headwater ctx`: servers by name."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.exits import usage
from headwater.cli.output import Json, write_json, write_line
from headwater.cli.records import ContextRecord
from headwater.cli.shell import say
from headwater.contexts import Context, authorization, check_name, check_url, file_path, load, save

app = typer.Typer(no_args_is_help=True)


def complete_context(incomplete: str) -> list[str]:
    """The names of contexts with this prefix, for shell completion."""
    try:
        return [name for name in sorted(load(say).by_name) if name.startswith(incomplete)]
    except Exception:
        return []  # a failing completion must not disturb the line being typed


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A context.", autocompletion=complete_context)
]


@app.callback()
def _ctx() -> None:
    """Remember servers and their tokens by name.

    Contexts are stored in ~/.config/headwater/config.toml, or in the file
    that $HEADWATER_CONFIG names, which only you can read. Tokens are never
    shown.

    Examples:

      headwater ctx add prod https://streams.example.com --token - --use
      headwater ctx ls
      headwater ls --context prod
    """


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name for it.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="The server's address.")],
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", help="Token; - asks for it, or reads it from a pipe."
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            help="CA certificates to trust for this server, in PEM.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Add or replace a server. The first one you add becomes the current one.

    Adding a name again replaces its server and token. A token on the
    command line stays in the shell's history, so prefer --token - and type
    it or pipe it in.

    Examples:

      headwater ctx add local http://127.0.0.1:4437
      pass show streams/prod | headwater ctx add prod https://streams.example.com --token -
    """
    check_name(name)
    secret = _read_token() if token == "-" else token
    authorization(secret)  # refuses a token that could not be sent
    contexts = load(say)
    contexts.by_name[name] = Context(
        check_url(url), secret or None, str(ca.resolve()) if ca else None
    )
    if use or contexts.current is None:
        contexts.current = name
    save(contexts)
    used = "in use" if contexts.current == name else f"`headwater ctx use {name}` switches to it"
    say(f"added {name} to {file_path()}; {used}")


@app.command(name="use")
def use_context(name: Name) -> None:
    """Use a server from now on.

    STREAM_URL, --url and --context still take precedence.

    Examples:

      headwater ctx use prod
    """
    contexts = load(say)
    contexts.get(name)
    contexts.current = name
    save(contexts)


@app.command()
def ls(json: Json = False) -> None:
    """List the servers; the one in use is marked.

    Examples:

      headwater ctx ls
      headwater ctx ls --json | jq -r .url
    """
    contexts = load(say)
    width = max(map(len, contexts.by_name), default=0)
    for name, context in sorted(contexts.by_name.items()):
        record = ContextRecord(
            name=name,
            url=context.url,
            has_token=context.token is not None,
            current=name == contexts.current,
        )
        if json:
            write_json(record)
        else:
            mark, key = "*" if record.current else " ", "  (token)" if record.has_token else ""
            write_line(f"{mark} {name:<{width}}  {context.url}{key}")


@app.command()
def rm(name: Name) -> None:
    """Forget a server. Nothing on it changes.

    Examples:

      headwater ctx rm prod
    """
    contexts = load(say)
    contexts.get(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = None
    save(contexts)


def _read_token() -> str:
    if sys.stdin.isatty():
        return getpass("Token: ").strip()
    token = sys.stdin.readline().strip()
    if not token:
        raise usage("there is no token on stdin; pipe it in, or leave --token out")
    return token
