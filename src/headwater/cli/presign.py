"""`headwater presign`: an address that reads a stream without a token."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urljoin

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, instant, write_json, write_line
from headwater.cli.quantities import parse_span_ms
from headwater.cli.records import AddressRecord
from headwater.cli.target import Target, with_target
from headwater.client import StreamNotFound
from headwater.client.protocol.streams import decoded


class _Signed(msgspec.Struct):
    url: str
    expires_at_ms: int


@with_target
def presign(
    target: Target,
    stream: remote.StreamPath,
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="Valid for this long: 30s, 15m, 7d.")
    ] = "1h",
    json: Json = False,
) -> None:
    """Create an address that can read one stream without a token.

    For browsers and links. Anyone who has the address can read the stream,
    also live, until it expires or the key that it was made with is revoked.
    Add &offset=-1&live=sse to follow the stream with an EventSource.

    Examples:

      headwater presign orders
      headwater presign reports/may --expires 7d
    """
    milliseconds = parse_span_ms(expires)
    if milliseconds % 1000 or not milliseconds:
        raise usage(f"{expires!r} is not valid; an address lasts for whole seconds")
    with target.connect(stream=stream) as client:
        path = remote.open_stream(client, stream).path
        body = {"stream": path, "expires_s": milliseconds // 1000}
        try:
            answer = client.request("POST", "/v1/presign", json=body)
        except StreamNotFound:
            raise CliError(
                f"{target.url} has no access control, so there is nothing to sign; streams can be "
                "read by their plain address"
            ) from None
        signed = decoded(answer, _Signed)
        url = urljoin(f"{remote.server_url(client)}/", signed.url)
    if json:
        write_json(AddressRecord(name=path, url=url, expires_at=instant(signed.expires_at_ms)))
    else:
        write_line(url)
