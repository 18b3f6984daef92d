"""`headwater doc`: collaborative documents, as far as they are text."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote, urljoin

import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.output import Json, report, stdout
from headwater.cli.records import DocumentRecord, DocumentRemovalRecord
from headwater.cli.streams import Yes, confirm
from headwater.cli.target import Target, with_target
from headwater.client import Headwater, ResponseError
from headwater.client.protocol.streams import Response

app = typer.Typer(no_args_is_help=True)

Document = Annotated[
    str, typer.Argument(metavar="SERVICE/PATH", help="The document, below /v1/yjs/SERVICE/docs/.")
]


@app.callback()
def _doc() -> None:
    """Show, create and delete collaborative documents (Yjs).

    Editors write them through a Yjs provider. Start the server with
    `headwater serve --documents`.

    Examples:

      headwater doc create editor/notes
      headwater doc show editor/notes --as text --part prosemirror
    """


@app.command()
@with_target
def create(target: Target, document: Document, json: Json = False) -> None:
    """Create a document if it does not exist.

    Examples:

      headwater doc create editor/notes
    """
    with target.connect() as client:
        answer = _ask(client, target, "PUT", document)
        url = _url(client, document)
    record = DocumentRecord(name=document, url=url, next_offset=answer.next_offset)
    report(record, f"{document} is there", json=json)


@app.command()
@with_target
def show(
    target: Target,
    document: Document,
    form: Annotated[
        Literal["text", "json"], typer.Option("--as", help="The content as text or as JSON.")
    ] = "text",
    part: Annotated[
        str, typer.Option("--part", metavar="NAME", help="Which shared type of the document.")
    ] = "",
) -> None:
    """Write the current content of a document to stdout.

    Examples:

      headwater doc show editor/notes
      headwater doc show editor/notes --as json | jq .
      headwater doc show board/plan --as json --part cards
    """
    with target.connect() as client:
        params = {"state": form, **({"name": part} if part else {})}
        body = _ask(client, target, "GET", document, params).body
    stdout().write(body if body.endswith(b"\n") else body + b"\n")


@app.command()
@with_target
def rm(
    target: Target,
    document: Document,
    purge: Annotated[
        bool, typer.Option("--purge", help="Keep nothing, so that it cannot be undeleted.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a document with its snapshots.

    Examples:

      headwater doc rm editor/notes
    """
    if not yes:
        confirm(target, f"the document {document}", for_good=purge)
    with target.connect() as client:
        _ask(client, target, "DELETE", document, {"purge": "true"} if purge else {})
    report(DocumentRemovalRecord(name=document), f"deleted {document}", json=json)


def _url(client: Headwater, document: str) -> str:
    service, slash, path = document.partition("/")
    if not slash or not service or not path:
        raise usage(f"{document!r} is not a document; write SERVICE/PATH, as in editor/notes")
    below = f"/v1/yjs/{quote(service, safe='')}/docs/{quote(path)}"
    return urljoin(f"{remote.server_url(client)}/", below)


def _ask(
    client: Headwater,
    target: Target,
    method: str,
    document: str,
    params: dict[str, str] | None = None,
) -> Response:
    try:
        return client.request(method, _url(client, document), params=params)
    except ResponseError as error:
        if error.code == "DOCUMENT_NOT_FOUND":
            raise CliError(
                f"there is no document {document} on {target.url}; `headwater doc create "
                f"{document}` makes one",
                ExitCode.NOT_FOUND,
            ) from None
        if error.status == 404:
            raise CliError(
                f"{target.url} serves no documents; start it with `headwater serve --documents`",
                ExitCode.NOT_FOUND,
            ) from None
        raise
