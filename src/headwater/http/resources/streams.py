"""The stream resource: PUT, POST, GET, HEAD and DELETE on /v1/stream/{path}."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from headwater.core import content_types
from headwater.core.access import Permission
from headwater.core.decisions import AppendReply, Create
from headwater.core.durability import RELAXED, SYNCED, parse_relaxed
from headwater.core.errors import InvalidPath, StreamError, StreamGone, StreamNotFound
from headwater.core.expiry import parse_lifetime
from headwater.core.lineage import ForkRequest, parse_fork
from headwater.core.offsets import Anchor
from headwater.core.paths import check_path
from headwater.core.retention import parse_retention
from headwater.core.stream import StreamConfig
from headwater.core.unique_ids import parse_unique_ids
from headwater.core.versions import parse_description, parse_version
from headwater.http import headers as names
from headwater.http.answers import EVENT_HEADERS, NO_STORE, done, stored
from headwater.http.feeds import sse
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.feeds.long_poll import LongPoll, nothing_new
from headwater.http.feeds.readers import Cursors, SseReader
from headwater.http.messages import Answer, Deferred, EventStream, Headers, Request, Response, Sink
from headwater.http.paths import STREAM_ROOT, decode_path, origin_form
from headwater.http.queries import flag_in, query_of
from headwater.http.reads import Packing, ReadQuery, chunk_headers, now_response, read_response
from headwater.http.resources.appends import append_command, append_response, shortcut_of
from headwater.service.chunks import Chunk
from headwater.service.clearing import clear
from headwater.service.entries import Entry
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.replies import Reply


class Layer(Protocol):
    """A layer on top of streams, with streams of its own that come and go with another."""

    async def deleted(self, stream: str, *, purge: bool) -> None: ...

    async def undeleted(self, stream: str) -> None: ...


class StreamResource:
    def __init__(
        self,
        log: Log,
        groups: Groups,
        feeds: Feeds,
        heartbeat: Heartbeat,
        long_poll_timeout_s: float,
    ) -> None:
        self._log = log
        self._groups = groups
        self._feeds = feeds
        self._heartbeat = heartbeat
        self._long_poll_timeout_s = long_poll_timeout_s
        self._cursors = Cursors(log.clock)
        self._packing = Packing(log.in_thread)
        self.layer: Layer | None = None
        self.followed = log.entry
        """Finds a stream to read live; in a cluster, streams of other nodes too."""

    # ── PUT ──────────────────────────────────────────────────────────────────────────────────

    async def put(self, request: Request, path: str) -> Response:
        fork = _fork(request)
        if fork is not None:
            request.demand(Permission.READ, fork.source)
        command = Create(
            path=check_path(path),
            content_type=_content_type(request),
            body=request.body,
            lifetime=parse_lifetime(
                request.header(names.STREAM_TTL), request.header(names.STREAM_EXPIRES_AT)
            ),
            closed=request.flag(names.STREAM_CLOSED),
            fork=fork,
            version=parse_version(request.header(names.STREAM_CONFIG_VERSION)),
            description=parse_description(request.header(names.STREAM_DESCRIPTION)),
            unique_ids=parse_unique_ids(
                request.header(names.STREAM_UNIQUE_IDS), request.header(names.STREAM_ID_POINTER)
            ),
            message_id=request.header(names.MESSAGE_ID),
            retention=parse_retention(
                request.header(names.STREAM_RETENTION_SECONDS),
                request.header(names.STREAM_RETENTION_BYTES),
            ),
            relaxed=parse_relaxed(request.header(names.STREAM_DURABILITY)),
            may_drop=request.may(Permission.DELETE, path),
        )
        reply = await self._log.create(command)
        headers: Headers = [
            ("Content-Type", reply.content_type),
            ("Stream-Next-Offset", reply.next_offset),
            NO_STORE,
        ]
        if reply.closed:
            headers.append(("Stream-Closed", "true"))
        if command.version is not None:
            headers += _config_headers(reply.config)
        if not reply.new:
            return Response(200, headers)
        headers.append(("Location", _location(request)))
        return Response(201, headers)

    # ── POST ─────────────────────────────────────────────────────────────────────────────────

    def post(self, request: Request, path: str) -> Deferred | Awaitable[Answer]:
        head = request.head
        if head is not None and head.handler is not None and head.append is not None:
            head.shortcut = shortcut_of(self._log, path, head.append)
        return self.append(request, path)

    def append(self, request: Request, path: str) -> Deferred | Awaitable[Answer]:
        """The same for resources that have something to add: they see every request."""
        entry = self._log.ready(path)
        return self._post_cold(request, path) if entry is None else self._post(request, entry)

    def _post(self, request: Request, entry: Entry) -> Deferred | Awaitable[Answer]:
        try:
            command = append_command(request)
        except StreamError:
            # A missing stream is reported before malformed headers.
            self._log.view(entry)
            raise
        reply = self._log.append_to(entry, command)
        if isinstance(reply, Reply):
            return Deferred(reply, append_response)
        return self._post_later(reply)

    async def _post_cold(self, request: Request, path: str) -> Answer:
        # A path that cannot exist is simply not found, without being parsed.
        answer = self._post(request, await self._log.entry(path))
        return await (answer.resolve() if isinstance(answer, Deferred) else answer)

    async def _post_later(self, reply: Awaitable[AppendReply]) -> Answer:
        return append_response(await reply)

    # ── GET ──────────────────────────────────────────────────────────────────────────────────

    def get(self, request: Request, path: str) -> Answer | Awaitable[Answer]:
        query = ReadQuery(request.query)
        entry = self._log.ready(check_path(path))
        if entry is None:
            return self._get_cold(request, path, query)
        chunk = self._log.read_hot(entry, query.offset, query.until)
        if chunk is None and query.until is None:
            chunk = self._log.read_known(entry, query.offset)
        if chunk is None:
            return self._read_cold(request, entry, query)
        return self._read(request, entry, query, chunk)

    async def _get_cold(self, request: Request, path: str, query: ReadQuery) -> Answer:
        entry = await (self.followed if query.live else self._log.entry)(path)
        chunk = self._log.read_hot(entry, query.offset, query.until)
        if chunk is None:
            return await self._read_cold(request, entry, query)
        answer = self._read(request, entry, query, chunk)
        return answer if isinstance(answer, Answer) else await answer

    async def _read_cold(self, request: Request, entry: Entry, query: ReadQuery) -> Answer:
        chunk = await self._log.read_pieces(entry, query.offset, query.until)
        answer = self._read(request, entry, query, chunk)
        return answer if isinstance(answer, Answer) else await answer

    def _read(
        self, request: Request, entry: Entry, query: ReadQuery, chunk: Chunk
    ) -> Answer | Awaitable[Answer]:
        if query.live is None:
            return self.caught_up(request, query, chunk)
        self._feeds.figures.reads[query.live] += 1
        if query.live == "sse":
            return self._events(entry, chunk.start, query.cursor)
        if chunk.is_empty and not chunk.closed:
            return self._poll(request, entry, query.cursor)
        cursor = self._cursors.after(query.cursor)
        if chunk.is_empty:
            return nothing_new(chunk, cursor)
        return read_response(request, chunk, cursor, self._packing)

    def caught_up(
        self, request: Request, query: ReadQuery, chunk: Chunk
    ) -> Response | Awaitable[Response]:
        """The answer to a plain read, whichever node owns the stream."""
        self._feeds.figures.reads["catch-up"] += 1
        if query.offset is Anchor.TAIL:
            return now_response(chunk)
        return read_response(request, chunk, None, self._packing, query.offset)

    def _poll(self, request: Request, entry: Entry, cursor: int | None) -> Awaitable[Answer]:
        view = self._log.view(entry)
        feed = self._feeds.of(entry, view)
        poll = LongPoll(request, view.tail, cursor, self._cursors, self._packing)
        return poll.wait(feed, self._long_poll_timeout_s)

    def _events(self, entry: Entry, position: int, cursor: int | None) -> EventStream:
        view = self._log.view(entry)
        reader = SseReader(self._feeds.of(entry, view), position, cursor, self._cursors)

        def start(sink: Sink) -> None:
            reader.begin(sink, self._heartbeat)

        headers = list(EVENT_HEADERS)
        if sse.needs_base64(view.config):
            headers.append(("Stream-SSE-Data-Encoding", "base64"))
        return EventStream(headers, start, reader.leave)

    # ── HEAD, DELETE, _clear ──────────────────────────────────────────────────────────────────

    async def head(self, request: Request, path: str) -> Response:
        entry = await self._log.entry(check_path(path))
        view = self._log.view(entry)
        at_tail = Chunk(view.config, view.tail, view.tail, [], False, view.closed)
        headers: Headers = [
            *stored(view.config.content_type),
            *chunk_headers(at_tail),
            NO_STORE,
        ]
        headers += _config_headers(view.config)
        if view.config.kept_from:
            earliest = view.config.lineage.token_at(view.config.kept_from)
            headers.append(("Stream-Earliest-Offset", earliest))
        return Response(200, headers)

    async def delete(self, request: Request, path: str) -> Response:
        purge = flag_in(query_of(request), "purge")
        try:
            await (self._log.purge if purge else self._log.delete)(check_path(path))
        except (StreamNotFound, StreamGone):
            # A crash may have left streams that belonged to it.
            await self._deleted(path, purge=purge)
            raise
        await self._deleted(path, purge=purge)
        return done()

    async def _deleted(self, path: str, *, purge: bool) -> None:
        if self.layer is not None:
            await self.layer.deleted(path, purge=purge)

    async def clear(self, request: Request, path: str) -> Response:
        offset = await clear(self._log, self._groups, path)
        return Response(204, [("Stream-Next-Offset", str(offset)), NO_STORE])

    async def undelete(self, request: Request, path: str) -> Response:
        offset = await self._log.grace.undelete(path)
        if self.layer is not None:
            await self.layer.undeleted(path)
        return Response(204, [("Stream-Next-Offset", offset), NO_STORE])


def _config_headers(config: StreamConfig) -> Headers:
    """The settings of a stream, as a PUT would send them; unset ones are left out."""
    lifetime, retention, ids = config.lifetime, config.retention, config.unique_ids
    settings: dict[str, object] = {
        "Stream-TTL": lifetime.ttl_s,
        "Stream-Expires-At": lifetime.expires_at_text,
        "Stream-Retention-Seconds": retention.age_s if retention else None,
        "Stream-Retention-Bytes": retention.size_bytes if retention else None,
        "Stream-Durability": RELAXED if config.relaxed else SYNCED,
        "Stream-Unique-Ids": ids.mode if ids else None,
        "Stream-Id-Pointer": ids.pointer if ids else None,
        "Stream-Description": config.description,
        "Stream-Config-Version": config.version or None,
    }
    return [(name, str(value)) for name, value in settings.items() if value is not None]


def _content_type(request: Request) -> str | None:
    value = request.header(names.CONTENT_TYPE)
    return content_types.check_content_type(value.strip()) if value and value.strip() else None


def _fork(request: Request) -> ForkRequest | None:
    source = request.header(names.STREAM_FORKED_FROM)
    if source is not None:
        source = _source_path(source)
    return parse_fork(
        source,
        request.header(names.STREAM_FORK_OFFSET),
        request.header(names.STREAM_FORK_SUB_OFFSET),
    )


def _source_path(value: str) -> str:
    """The source of a fork, given as a stream path or as its URL path."""
    raw = value.encode()
    path = raw.removeprefix(STREAM_ROOT) if raw.startswith(b"/") else raw
    if not path or path.startswith(b"/"):
        raise InvalidPath("Stream-Forked-From names the source stream, e.g. /v1/stream/source")
    return check_path(decode_path(path))


def _location(request: Request) -> str:
    path = origin_form(request.path).decode("ascii", "replace")
    host = request.headers.get(b"host")
    return f"{request.peer.scheme}://{host.decode('latin-1')}{path}" if host else path
