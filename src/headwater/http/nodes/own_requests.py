"""Requests that a node makes on its own behalf, to whichever node can answer them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import quote

from headwater.core.content_types import is_json
from headwater.core.decisions import Append
from headwater.core.errors import (
    ConfigConflict,
    OwnedElsewhere,
    StorageUnavailable,
    StreamClosed,
    StreamNotFound,
)
from headwater.http import headers as names
from headwater.http.messages import Handler, Request, Response
from headwater.http.paths import STREAM_ROOT
from headwater.http.wire.outcomes import resolved
from headwater.http.wire.response_heads import parsed

_HOST: Final = b"localhost"


class OwnRequests:
    """Operations on streams that this node may not own."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def append(self, path: str, command: Append) -> None:
        """Raises StorageUnavailable if it may be retried."""
        headers = {}
        if command.content_type is not None:
            headers[names.CONTENT_TYPE] = command.content_type.encode()
        if command.close:
            headers[names.STREAM_CLOSED] = b"true"
        if command.producer is not None:
            headers[names.PRODUCER_ID] = command.producer.id.encode()
            headers[names.PRODUCER_EPOCH] = b"%d" % command.producer.epoch
            headers[names.PRODUCER_SEQ] = b"%d" % command.producer.seq
        answer = await self._ask("POST", path, headers, command.body)
        if answer.status == 409:
            raise StreamClosed("")
        _demand_success(path, answer)

    async def create(self, path: str, content_type: str) -> None:
        """Create the stream unless one exists, whatever it holds."""
        # This node raises where another one answers with 409.
        with suppress(ConfigConflict):
            answer = await self._ask("PUT", path, {names.CONTENT_TYPE: content_type.encode()})
            if answer.status != 409:
                _demand_success(path, answer)

    async def holds_json(self, path: str) -> bool:
        """Whether a stream holds JSON, and accepts messages with any id."""
        answer = await self._ask("HEAD", path, {})
        _demand_success(path, answer)
        found = {name.lower(): value for name, value in (*answer.headers, *parsed(answer.lines))}
        checks_ids = names.STREAM_UNIQUE_IDS.decode() in found
        return is_json(found.get(names.CONTENT_TYPE.decode(), "")) and not checks_ids

    async def _ask(
        self, method: str, path: str, headers: dict[bytes, bytes], body: bytes = b""
    ) -> Response:
        target = STREAM_ROOT + quote(path, safe="/").encode()
        request = Request(method, target, b"", {b"host": _HOST, **headers})
        request.body = body
        request.is_of_node = True
        try:
            answer = await resolved(self._handler(request))
        except OwnedElsewhere as error:
            raise StorageUnavailable(error.message) from None
        assert isinstance(answer, Response)
        return answer


def _demand_success(path: str, answer: Response) -> None:
    if answer.status in (404, 410):
        raise StreamNotFound(path)
    if answer.status >= 300:
        raise StorageUnavailable(f"another node answered {answer.status}; try again")
