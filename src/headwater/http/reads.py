"""Catch-up reads: from a chunk of a stream to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

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

# How many bodies are compressed at once: other work needs threads too.
_PACKED_AT_ONCE: Final = 2
# How many may wait for that. Beyond it, bodies are sent uncompressed, which takes no thread.
_PACKED_LATER_MAX: Final = 32


class ReadQuery:
    """The validated query of a GET."""

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
    """Where a read ends at the latest: an offset from the server."""
    if values is None:
        return None
    until = parse_offset(values[0])
    if len(values) > 1 or not isinstance(until, Offset):
        raise InvalidOffset("until must be one token from Stream-Next-Offset")
    return until


def chunk_headers(chunk: Chunk) -> Headers:
    """Where a read ended: in every response with data, or that says there is none."""
    headers: Headers = [("Stream-Next-Offset", chunk.next_offset)]
    if chunk.up_to_date:
        headers.append(("Stream-Up-To-Date", "true"))
    if chunk.closed:
        headers.append(("Stream-Closed", "true"))
        reason = close_reason(chunk.config)
        if reason is not None:
            headers.append(("Stream-Close-Reason", reason))
    return headers


class Packing:
    """Compresses large bodies on threads."""

    def __init__(self, in_thread: Callable[[Callable[[], bytes]], Awaitable[bytes]]) -> None:
        self._in_thread = in_thread
        self._turns = asyncio.Semaphore(_PACKED_AT_ONCE)
        self._begun = 0

    def begin(self, pack: Callable[[], bytes]) -> asyncio.Future[bytes] | None:
        """A future of the compressed body; None if there is too much to do already."""
        if self._begun >= _PACKED_AT_ONCE + _PACKED_LATER_MAX:
            return None
        self._begun += 1
        packed = asyncio.ensure_future(self._pack(pack))
        packed.add_done_callback(self._ended)
        return packed

    async def _pack(self, pack: Callable[[], bytes]) -> bytes:
        async with self._turns:
            return await self._in_thread(pack)

    def _ended(self, packed: asyncio.Future[bytes]) -> None:
        self._begun -= 1


class ChunkBody:
    """A chunk as it is sent: built once, and once per encoding, however many clients get it."""

    __slots__ = ("_chunk", "_packed", "_plain", "size")

    def __init__(self, chunk: Chunk) -> None:
        self.size = chunk.end - chunk.start + chunk.config.is_json
        self._chunk = chunk
        self._plain: bytes | FileBody | None = None
        self._packed: dict[str, bytes | asyncio.Future[bytes]] = {}

    @property
    def plain(self) -> bytes | FileBody:
        if self._plain is None:
            self._plain = _plain(self._chunk)
        return self._plain

    def packed(self, encoding: str, packing: Packing) -> bytes | asyncio.Future[bytes] | None:
        """The body in an encoding, as soon as it is available; None if it cannot be had."""
        found = self._packed.get(encoding)
        if found is None:
            # A large body is joined only when its turn comes: many copies of it may be waiting.
            pack = partial(self._pack, compression.ENCODERS[encoding])
            is_large = self.size > compression.INLINE_BYTES_MAX
            found = packing.begin(pack) if is_large else pack()
            if found is not None:
                self._packed[encoding] = found
        return found

    def _pack(self, encode: Callable[[bytes], bytes]) -> bytes:
        plain = self.plain
        return encode(plain if isinstance(plain, bytes) else plain.read())


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
    """How long caches may keep a chunk.

    A chunk that ends at the tail of an open stream goes stale with the next append. The answer to a
    long-poll may be cached anyway: its reader continues at its end and misses nothing, and caches
    can merge identical polls. History never changes, but its path can be given to another stream:
    only an offset that this very stream wrote can never mean anything else.
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
    packing: Packing,
    offset: Anchor | Offset | None = None,
    body: ChunkBody | None = None,
) -> Response | Awaitable[Response]:
    """A chunk as a response: conditional, compressed, and cacheable as far as that is safe."""
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
    return _with_body(request, Response(200, headers), body or ChunkBody(chunk), packing)


def now_response(chunk: Chunk) -> Response:
    """`offset=now` without a live mode: no data, just the position, never cached."""
    headers: Headers = [
        *stored(chunk.config.content_type),
        *chunk_headers(chunk),
        NO_STORE,
    ]
    return Response(200, headers, b"[]" if chunk.config.is_json else b"")


def _with_body(
    request: Request, response: Response, body: ChunkBody, packing: Packing
) -> Response | Awaitable[Response]:
    """The response with its body, encoded as the client prefers."""
    encoding, packed = _encoding(request, response.headers[0][1], body.size), None
    if encoding is not None:
        packed = body.packed(encoding, packing)
    if encoding is None or packed is None:
        response.body = body.plain
        return response
    response.headers.append(("Content-Encoding", encoding))
    if not isinstance(packed, bytes):
        return _when_packed(response, packed)
    response.body = packed
    return response


def _encoding(request: Request, content_type: str, size: int) -> str | None:
    accepted = request.headers.get(names.ACCEPT_ENCODING)
    if accepted is None or size < compression.MINIMUM_BYTES:
        return None
    if not compression.is_compressible(content_type):
        return None
    return compression.choose_encoding(accepted.decode("latin-1"))


async def _when_packed(response: Response, packed: Awaitable[bytes]) -> Response:
    response.body = await packed
    return response
