"""Catch-up reads: from a chunk of a stream to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.core import cursors, etags, json_mode
from headwater.core.errors import InvalidOffset, InvalidQuery
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.core.responses.about import close_reason
from headwater.http import compression
from headwater.http import headers as names
from headwater.http.answers import NO_STORE, stored
from headwater.http.messages import FileBody, Headers, Request, Response
from headwater.http.queries import parse_query
from headwater.service.chunks import Chunk

CATCH_UP_CACHE = "public, max-age=60, stale-while-revalidate=300"
HISTORY_CACHE = "public, max-age=31536000, immutable"
_LIVE_MODES = ("long-poll", "sse")

Offload = Callable[..., Awaitable[bytes]]


class ReadQuery:
    """The query of a GET, checked."""

    __slots__ = ("cursor", "live", "offset", "until")

    def __init__(self, query: bytes) -> None:
        values = parse_query(query)
        self.offset = self._offset(values.get("offset"))
        self.until = parse_until(values.get("until"))
        self.live = self._live(values.get("live"))
        self.cursor = cursors.parse_cursor(values.get("cursor", [None])[0])
        if self.live is not None and "offset" not in values:
            raise InvalidOffset(f"a live={self.live} read needs an offset; -1 is the beginning")
        if self.live is not None and self.until is not None:
            raise InvalidQuery("a live read has no end: leave until out")

    @staticmethod
    def _offset(values: list[str] | None) -> Anchor | Offset:
        if values is None:
            return Anchor.START
        if len(values) > 1:
            raise InvalidOffset("send one offset, not several")
        return parse_offset(values[0])

    @staticmethod
    def _live(values: list[str] | None) -> str | None:
        if values is None or values[0] in ("", "false"):
            return None
        if values[0] not in _LIVE_MODES:
            raise InvalidQuery("live must be long-poll, sse or false")
        return values[0]


def parse_until(values: list[str] | None) -> Offset | None:
    """Where a read ends at the latest: an offset that the server gave out."""
    if values is None:
        return None
    until = parse_offset(values[0])
    if len(values) > 1 or not isinstance(until, Offset):
        raise InvalidOffset("until must be one token from Stream-Next-Offset")
    return until


def chunk_headers(chunk: Chunk) -> Headers:
    """Where a read got to: in every response that carries data or says there is none."""
    headers: Headers = [("Stream-Next-Offset", chunk.next_offset)]
    if chunk.up_to_date:
        headers.append(("Stream-Up-To-Date", "true"))
    if chunk.closed:
        headers.append(("Stream-Closed", "true"))
        reason = close_reason(chunk.config)
        if reason is not None:
            headers.append(("Stream-Close-Reason", reason))
    return headers


class ChunkBody:
    """A chunk as it is sent: made once, and once in each encoding, however many are sent it."""

    __slots__ = ("_packed", "plain")

    def __init__(self, chunk: Chunk) -> None:
        self.plain = _plain(chunk)
        self._packed: dict[str, bytes | asyncio.Future[bytes]] = {}

    def packed(self, encoding: str, offload: Offload) -> bytes | asyncio.Future[bytes]:
        """In an encoding; large ones are made on a thread."""
        found = self._packed.get(encoding)
        if found is None:
            encode, plain = compression.ENCODERS[encoding], self.plain
            if isinstance(plain, FileBody):
                found = asyncio.ensure_future(offload(lambda: encode(plain.read())))
            elif len(plain) > compression.INLINE_BYTES_MAX:
                found = asyncio.ensure_future(offload(encode, plain))
            else:
                found = encode(plain)
            self._packed[encoding] = found
        return found


def _plain(chunk: Chunk) -> bytes | FileBody:
    pieces = chunk.bodies if chunk.pieces is None else chunk.pieces
    in_memory = [piece for piece in pieces if isinstance(piece, bytes)]
    if len(in_memory) == len(pieces):
        stored = b"".join(in_memory)
        return json_mode.as_array(stored) if chunk.config.is_json else stored
    if not chunk.config.is_json:
        return FileBody(pieces)
    # The same array as above: brackets around everything but the last comma.
    *before, last = pieces
    last = last[:-1] if isinstance(last, bytes) else last.without_last()
    return FileBody([b"[", *before, last, b"]"])


def cache_control(chunk: Chunk, offset: Anchor | Offset | None, *, polled: bool) -> str:
    """How long others may keep a chunk.

    What ends at the tail of an open stream goes stale with the next append. The answer to a
    long-poll may be cached anyway: its reader continues at its end and misses nothing, and caches
    can merge equal polls. History never changes, but its path can be given to another stream: only
    an offset that this very stream wrote can never mean anything else.
    """
    if polled:
        return CATCH_UP_CACHE
    if chunk.up_to_date and not chunk.closed:
        return "no-cache"
    own = isinstance(offset, Offset) and offset.run == chunk.config.id
    return HISTORY_CACHE if own and chunk.is_history and not chunk.up_to_date else CATCH_UP_CACHE


def read_response(
    request: Request,
    chunk: Chunk,
    cursor: int | None,
    offload: Offload,
    offset: Anchor | Offset | None = None,
    body: ChunkBody | None = None,
) -> Response | Awaitable[Response]:
    """A chunk as a response: conditional, cacheable as far as that is safe, compressed."""
    config = chunk.config
    tag = etags.etag(config.id, config.path, chunk.start, chunk.end, closed=chunk.closed)
    headers: Headers = [
        *stored(config.content_type),
        *chunk_headers(chunk),
        ("ETag", tag),
        ("Cache-Control", cache_control(chunk, offset, polled=cursor is not None)),
    ]
    if chunk.start == config.kept_from and config.kept_from:
        earliest = config.lineage.token_at(config.kept_from)
        headers.append(("Stream-Earliest-Offset", earliest))
    if cursor is not None and not chunk.closed:
        headers.append(("Stream-Cursor", str(cursor)))
    if compression.is_compressible(config.content_type):
        headers.append(("Vary", "Accept-Encoding"))
    if_none_match = request.headers.get(names.IF_NONE_MATCH)
    if if_none_match is not None and etags.matches(if_none_match.decode("latin-1"), tag):
        return Response(304, headers)
    return _with_body(request, Response(200, headers), body or ChunkBody(chunk), offload)


def now_response(chunk: Chunk) -> Response:
    """`offset=now` without a live mode: no data, just the position, never cached."""
    headers: Headers = [
        *stored(chunk.config.content_type),
        *chunk_headers(chunk),
        NO_STORE,
    ]
    return Response(200, headers, b"[]" if chunk.config.is_json else b"")


def _with_body(
    request: Request, response: Response, body: ChunkBody, offload: Offload
) -> Response | Awaitable[Response]:
    """The body as the client likes it."""
    response.body = body.plain
    content_type = response.headers[0][1]
    accepted = request.headers.get(names.ACCEPT_ENCODING)
    if accepted is None or len(response.body) < compression.MINIMUM_BYTES:
        return response
    if not compression.is_compressible(content_type):
        return response
    encoding = compression.choose_encoding(accepted.decode("latin-1"))
    if encoding is None:
        return response
    response.headers.append(("Content-Encoding", encoding))
    packed = body.packed(encoding, offload)
    if not isinstance(packed, bytes):
        return _when_packed(response, packed)
    response.body = packed
    return response


async def _when_packed(response: Response, packed: Awaitable[bytes]) -> Response:
    response.body = await packed
    return response
