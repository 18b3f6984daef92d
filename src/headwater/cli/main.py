"""The command line: the commands and where they are. Data on stdout, messages on stderr."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headwater import __version__
from headwater.cli import server_options
from headwater.cli.shell import Shell

app = typer.Typer(
    name="headwater",
    cls=Shell,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Where each command is. A module is loaded when its command is used, or its help is shown.
COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Streams": {
        "create": "streams:create",
        "append": "append.command:append",
        "read": "read.command:read",
        "tail": "read.command:tail",
        "ls": "listing:ls",
        "info": "listing:info",
        "ranges": "listing:ranges",
        "set": "configure:set_",
        "close": "streams:close",
        "fork": "streams:fork",
        "clear": "streams:clear",
        "rm": "streams:rm",
        "undelete": "streams:undelete",
        "transaction": "transaction:transaction",
        "snapshot": "snapshots:app",
        "live": "live:app",
        "presign": "presign:presign",
        "postgres": "postgres:app",
        "subscription": "subscriptions:app",
        "doc": "documents:app",
        "fetch": "responses:fetch",
        "response": "responses:app",
    },
    "Groups": {"consume": "consume.command:consume", "group": "groups.command:app"},
    "Servers": {
        "serve": "serving.command:serve",
        "up": "serving.command:up",
        "health": "health:health",
        "whoami": "whoami:whoami",
        "api": "api:api",
        "doctor": "doctor:doctor",
        "verify": "verify:verify",
        "backup": "backup:backup",
        "restore": "backup:restore",
        "copy": "copy:copy",
        "cluster": "cluster:app",
        "top": "top:top",
        "demo": "demo:demo",
        "bench": "bench.command:bench",
        "segments": "segments:app",
        "ctx": "contexts:app",
        "keys": "keys:app",
        "completion": "completion:completion",
    },
    "Pipelines": {"sql": "tables.sql:sql", "pipeline": "pipelines:app"},
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
    url: server_options.Url = None,
    token: server_options.Token = None,
    context: server_options.ContextName = None,
    ca: server_options.Ca = None,
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


Shell.table = COMMANDS
