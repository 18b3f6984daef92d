"""`headwater fetch` and `headwater response`: answers of other servers, kept by this one."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.inputs import parse_header, read_argument
from headwater.cli.output import Json, report, stdout, watched_pipe, write_json
from headwater.cli.records import ResponseEndRecord, ResponseRecord
from headwater.cli.shell import say
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.client import (
    START,
    DurableResponse,
    Headwater,
    Position,
    ResponseIncomplete,
    StreamNotFound,
    UpstreamRefused,
)

app = typer.Typer(no_args_is_help=True)

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="The address, as `fetch` printed it.")
]


@with_target
def fetch(
    target: Target,
    upstream: Annotated[str, typer.Argument(metavar="URL", help="The address to fetch.")],
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
        typer.Option("-X", "--method", help="HTTP method."),
    ] = "GET",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "-H", "--header", metavar="NAME: VALUE", help="Header for the upstream; repeatable."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("-d", "--data", metavar="TEXT", help="A body, or @FILE (@- is stdin)."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only print the answer's address, and exit.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the server send a request elsewhere and store the answer as it arrives.

    The answer is written to stdout as it arrives. Its address is written to
    stderr: anyone who has it can read the answer from the beginning, now or
    later, even if this command is stopped. The server has to allow the URL:
    `headwater serve --proxy-allow`.

    Examples:

      headwater fetch https://api.example.com/report
      headwater fetch https://llm.example.com/chat -X POST -H "Authorization: $KEY" -d @ask.json
      headwater fetch https://llm.example.com/chat -X POST -d @ask.json --detach --json
    """
    body = None if data is None else read_argument(data)
    headers = dict(map(parse_header, header or []))
    with target.connect(patience_s=PATIENT_S) as client, watched_pipe():
        try:
            answer = client.durable_request(upstream, method=method, headers=headers, body=body)
        except StreamNotFound:
            raise _not_offered(target) from None
        except UpstreamRefused as error:
            raise CliError(f"{upstream} refused it: {error.message}") from None
        record = ResponseRecord(url=answer.url, content_type=answer.content_type)
        if json:
            write_json(record)
        else:
            say(f"headwater response read '{answer.url}'")
        if not detach and not json:
            _copy(answer, START)


@app.callback()
def _response() -> None:
    """Read, abort and delete answers stored by `headwater fetch`.

    Examples:

      headwater response read 'http://127.0.0.1:4437/v1/proxy/…'
    """


@app.command()
@with_target
def read(
    target: Target,
    address: Address,
    where: Annotated[
        str, typer.Option("--from", metavar="OFFSET", help="Start at: start, or an OFFSET.")
    ] = "start",
) -> None:
    """Write an answer to stdout, until all of it has arrived.

    Exits with 1 if it ended early.

    Examples:

      headwater response read 'http://127.0.0.1:4437/v1/proxy/…' > report.json
    """
    with target.connect(patience_s=PATIENT_S) as client, watched_pipe():
        try:
            begin = Position.parse(START if where == "start" else where)
        except ValueError:
            raise usage(f"{where!r} is no offset") from None
        _copy(_open(client, address), begin)


@app.command()
@with_target
def abort(target: Target, address: Address, json: Json = False) -> None:
    """Stop the request. What has arrived stays.

    Examples:

      headwater response abort 'http://127.0.0.1:4437/v1/proxy/…'
    """
    with target.connect() as client:
        _open(client, address).abort()
    report(ResponseEndRecord(url=address, removed=False), "aborted", json=json)


@app.command()
@with_target
def rm(target: Target, address: Address, json: Json = False) -> None:
    """Stop the request and drop what has arrived.

    Examples:

      headwater response rm 'http://127.0.0.1:4437/v1/proxy/…'
    """
    with target.connect() as client:
        _open(client, address).delete()
    report(ResponseEndRecord(url=address, removed=True), "deleted", json=json)


def _open(client: Headwater, address: str) -> DurableResponse:
    if not address.startswith(("http://", "https://")):
        raise usage(
            f"{address!r} is not the address of an answer; use the one that `fetch` printed"
        )
    return client.durable_response(address)


def _copy(answer: DurableResponse, begin: str | Position) -> None:
    reader = answer.follow(begin)
    try:
        for piece in reader.bytes():
            stdout().write(piece)
            stdout().flush()
    except ResponseIncomplete as error:
        raise CliError(f"the answer ended early: {error.message}") from None
    if reader.close_reason not in (None, "completed"):
        raise CliError(f"the answer ended early: {reader.close_reason}")


def _not_offered(target: Target) -> CliError:
    return CliError(
        f"{target.url} makes no requests for others; start it with "
        "`headwater serve --proxy-allow URL`",
        ExitCode.NOT_FOUND,
    )
