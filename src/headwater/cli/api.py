"""`headwater api`: any request, with the address and token of the current context."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from headwater.cli.exits import usage
from headwater.cli.inputs import parse_header, parse_pair, read_argument
from headwater.cli.output import is_terminal, stdout, write_line
from headwater.cli.target import Target, with_target
from headwater.client.protocol.values import UNREADABLE

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@with_target
def api(
    target: Target,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Path from the root, such as /metrics.")
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "-X",
            "--method",
            metavar="METHOD",
            help="GET, or POST if there is a body.",
            show_default=False,
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("-q", "--query", metavar="NAME=VALUE", help="Query parameter; repeatable."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", metavar="NAME: VALUE", help="A header; repeatable."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("-d", "--data", metavar="JSON", help="JSON body, or @FILE, or @- for stdin."),
    ] = None,
    include: Annotated[
        bool,
        typer.Option("-i", "--include", help="Also write the status and headers, before the body."),
    ] = False,
) -> None:
    """Send any request to the server, and write its answer to stdout.

    Uses the address, token and certificates of the current context. Use it
    for requests that have no command of their own; `/openapi.json` lists
    them all.

    Examples:

      headwater api /metrics
      headwater api /v1/figures | jq .
      headwater api /v1/sql -d '{"sql": "SELECT count(*) FROM sales"}'
      headwater api /v1/stream/orders -X HEAD -i
    """
    if not path.startswith("/"):
        raise usage(f"{path!r} is not a path; it must begin with /")
    verb = (method or ("GET" if data is None else "POST")).upper()
    if verb not in METHODS:
        raise usage(f"{method!r} is not a method; use one of {', '.join(METHODS)}")
    params = dict(parse_pair(one, "=", "parameter", "NAME=VALUE") for one in query or [])
    headers = dict(map(parse_header, header or []))
    body = None if data is None else _json(data)
    with target.connect() as client:
        answer = client.request(verb, path, params=params or None, headers=headers, json=body)
    if include:
        write_line(f"HTTP {answer.status}")
        for name, value in answer.headers.items():
            write_line(f"{name}: {value}")
        write_line("")
    stdout().write(answer.body)
    if is_terminal() and not answer.body.endswith(b"\n"):
        write_line("")


def _json(data: str) -> msgspec.Raw:
    text = read_argument(data)
    try:
        msgspec.json.decode(text)
    except UNREADABLE as error:
        raise usage(f"the body is not JSON: {error}") from None
    return msgspec.Raw(text)
