"""The options that choose a server, which most commands have."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headwater.contexts import CA_VARIABLE, DEFAULT_URL, TOKEN_VARIABLES, URL_VARIABLE

PANEL = "Server"
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"Address of the server; also ${URL_VARIABLE}. Without either: {DEFAULT_URL}.",
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Bearer token, or a whole Authorization value; also "
        f"{' or '.join(f'${name}' for name in TOKEN_VARIABLES)}.",
        rich_help_panel=PANEL,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="A server set up with `headwater ctx add`.",
        rich_help_panel=PANEL,
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help=f"CA certificates to trust for the server, in PEM; also ${CA_VARIABLE}.",
        rich_help_panel=PANEL,
    ),
]
OPTIONS: Final = {"url": Url, "token": Token, "context": ContextName, "ca": Ca}
