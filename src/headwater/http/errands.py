"""Requests that a node makes for itself, through whichever node can answer them."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from headwater.core.decisions import Append
from headwater.core.errors import OwnedElsewhere, StorageUnavailable, StreamClosed, StreamNotFound
from headwater.http import headers as names
from headwater.http.leases import resolved
from headwater.http.messages import Handler, Request, Response
from headwater.http.targets import STREAM_ROOT

_HOST: Final = b"localhost"


async def append(handler: Handler, path: str, command: Append) -> None:
    """Append to a stream, whoever owns it. Raises StorageUnavailable if that may be tried again."""
    headers = {b"host": _HOST}
    if command.content_type is not None:
        headers[names.CONTENT_TYPE] = command.content_type.encode()
    if command.close:
        headers[names.STREAM_CLOSED] = b"true"
    if command.producer is not None:
        headers[names.PRODUCER_ID] = command.producer.id.encode()
        headers[names.PRODUCER_EPOCH] = b"%d" % command.producer.epoch
        headers[names.PRODUCER_SEQ] = b"%d" % command.producer.seq
    request = Request("POST", STREAM_ROOT + quote(path, safe="/").encode(), b"", headers)
    request.body = command.body
    request.is_of_node = True
    try:
        answer = await resolved(handler(request))
    except OwnedElsewhere as error:
        raise StorageUnavailable(error.message) from None
    status = answer.status if isinstance(answer, Response) else 500
    if status in (404, 410):
        raise StreamNotFound(path)
    if status == 409:
        raise StreamClosed("")
    if status >= 300:
        raise StorageUnavailable(f"another node answered {status}; try again")
