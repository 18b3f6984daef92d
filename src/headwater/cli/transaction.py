"""`headwater transaction`: several messages in several streams, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.exits import usage
from headwater.cli.inputs import read_whole
from headwater.cli.output import Json, report
from headwater.cli.records import TransactionRecord
from headwater.cli.target import Target, with_target
from headwater.client.protocol.streams import decoded
from headwater.client.protocol.values import UNREADABLE


@with_target
def transaction(
    target: Target,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help="File with the messages; by default, stdin.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Append several messages to several streams, all or nothing.

    Every line is a message with its `stream` and its `value`, or `data` in
    base64 for a stream that does not hold JSON. It may have an `id`,
    `on_duplicate` ("abort" or "succeed"), and a `producer` with its `id`,
    `epoch` and `seq`. Or the input is one object, as for POST
    /v1/transaction, which can also acknowledge messages of a group (`ack`).

    Examples:

      headwater transaction transfer.ndjson
      echo '{"stream": "stock", "value": {"tea": -1}}
            {"stream": "orders", "value": {"item": "tea"}}' | headwater transaction
    """
    body = _body(read_whole([file] if file else []))
    with target.connect() as client:
        answer = client.request("POST", "/v1/transaction", json=body)
        record = decoded(answer, TransactionRecord)
    streams = len({one.stream for one in record.published})
    report(
        record,
        f"committed {len(record.published)} messages in {streams} streams, {record.acked} acked",
        json=json,
    )


def _body(text: bytes) -> dict[str, Any]:
    """The body of the request. Values stay the JSON text they were."""
    try:
        whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        whole = {}  # several lines, or invalid
    if whole and "stream" not in whole:
        return whole
    publish: list[dict[str, msgspec.Raw]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            part = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        except UNREADABLE as error:
            raise usage(f"line {number} is not a message of a transaction: {error}") from None
        if "stream" not in part or not part.keys() & {"value", "data"}:
            raise usage(f"line {number} needs a stream and a value, or data")
        publish.append(part)
    if not publish:
        raise usage("there is nothing to commit; the input is empty")
    return {"publish": publish}
