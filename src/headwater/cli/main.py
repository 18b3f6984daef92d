"""The command line: what a person does at a prompt. Data on stdout, messages on stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from headwater import __version__
from headwater.cli import (
    contexts,
    groups,
    keys,
    pipelines,
    postgres,
    segments,
    subscription,
    target,
)
from headwater.cli.append import append
from headwater.cli.backup import backup, restore
from headwater.cli.bench import bench
from headwater.cli.consume import consume
from headwater.cli.doctor import doctor
from headwater.cli.listing import info, ls
from headwater.cli.presign import presign
from headwater.cli.read import read, tail
from headwater.cli.serving.command import serve, up
from headwater.cli.shell import Shell
from headwater.cli.sql import sql
from headwater.cli.streams import clear, close, create, fork, rm, undelete
from headwater.cli.top import top
from headwater.cli.verify import verify

app = typer.Typer(
    name="headwater",
    cls=Shell,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: Final[dict[str, dict[str, Callable[..., None]]]] = {
    "Streams": {
        "create": create,
        "append": append,
        "read": read,
        "tail": tail,
        "ls": ls,
        "info": info,
        "close": close,
        "fork": fork,
        "clear": clear,
        "rm": rm,
        "undelete": undelete,
        "presign": presign,
    },
    "Groups": {"consume": consume},
    "Servers": {
        "serve": serve,
        "up": up,
        "doctor": doctor,
        "verify": verify,
        "backup": backup,
        "restore": restore,
        "top": top,
        "bench": bench,
    },
    "Pipelines": {"sql": sql},
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    url: target.Url = None,
    token: target.Token = None,
    context: target.ContextName = None,
    ca: target.Ca = None,
) -> None:
    """Durable streams: append-only logs over HTTP.

    Examples:

      headwater serve                        # a server, data in ./data
      headwater up --demo                    # the same with tables and a demo
      headwater create orders                # a stream of JSON messages
      headwater append orders '{"id": 1}'    # write
      headwater read orders                  # read
      headwater tail orders                  # follow

    Data goes to stdout, messages go to stderr. Exit codes: 0 done, 1 failed,
    2 usage, 3 not found, 4 conflict or closed, 5 unauthorised, 6 server
    unavailable, 130 interrupted, 141 output closed.
    """


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(name=_name, rich_help_panel=_panel)(_command)
app.add_typer(groups.app, name="group", rich_help_panel="Groups")
app.add_typer(postgres.app, name="postgres", rich_help_panel="Streams")
app.add_typer(subscription.app, name="subscription", rich_help_panel="Streams")
app.add_typer(segments.app, name="segments", rich_help_panel="Servers")
app.add_typer(pipelines.app, name="pipeline", rich_help_panel="Pipelines")
app.add_typer(contexts.app, name="ctx", rich_help_panel="Servers")
app.add_typer(keys.app, name="keys", rich_help_panel="Servers")
