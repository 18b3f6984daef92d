"""The document resource: /v1/yjs/{service}/docs/{path}.

A document is a stream, and most of this is what streams do. The query makes the difference:
snapshots are offsets, and `awareness` names a stream that belongs to the document.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final
from urllib.parse import urlencode

from headwater.core import content_types
from headwater.core.decisions import AppendReply
from headwater.core.documents import addresses, framing
from headwater.core.errors import InvalidHeader, InvalidQuery, StreamGone, StreamNotFound
from headwater.core.offsets import BEGINNING
from headwater.documents.documents import Documents
from headwater.http import headers as names
from headwater.http.answers import NO_STORE, stored
from headwater.http.messages import Answer, Deferred, FileBody, Headers, Request, Response
from headwater.http.paths import origin_form
from headwater.http.queries import parse_query
from headwater.http.resources.appends import append_response
from headwater.http.resources.streams import StreamResource
from headwater.service.log import Log

DISCOVERY_CACHE: Final = "private, max-age=5"
SNAPSHOT_CACHE: Final = "private, max-age=31536000, immutable"
_FORMS: Final = {"json": content_types.JSON, "text": "text/plain; charset=utf-8"}
# These would end a document, shorten it or make it another kind of stream.
_NOT_FOR_DOCUMENTS: Final = (
    names.STREAM_TTL,
    names.STREAM_EXPIRES_AT,
    names.STREAM_RETENTION_SECONDS,
    names.STREAM_RETENTION_BYTES,
    names.STREAM_FORKED_FROM,
    names.STREAM_UNIQUE_IDS,
    names.STREAM_CONFIG_VERSION,
    names.STREAM_CLOSED,
)
_AWARENESS: Final = b"awareness"


class DocumentResource:
    def __init__(self, streams: StreamResource, log: Log, documents: Documents) -> None:
        self._streams = streams
        streams.layer = documents
        self._log = log
        self._documents = documents

    # ── PUT ──────────────────────────────────────────────────────────────────────────────────

    async def put(self, request: Request, service: str, path: str) -> Response:
        document = addresses.stream_of(service, path)
        name = _awareness(request)
        if name is not None:
            return await self._put_awareness(document, name)
        await self._check_frames(request.body)
        _typed(request)
        _check_settings(request, is_new=not await self._is_there(document))
        response = await self._streams.put(request, document)
        await self._documents.ensure_awareness(document, addresses.AWARENESS)
        self._note(document)
        return response

    async def _put_awareness(self, document: str, name: str) -> Response:
        reply = await self._documents.ensure_awareness(document, name)
        headers: Headers = [
            ("Content-Type", reply.content_type),
            ("Stream-Next-Offset", reply.next_offset),
            NO_STORE,
        ]
        return Response(201 if reply.new else 200, headers)

    async def _is_there(self, document: str) -> bool:
        try:
            self._log.view(await self._log.entry(document))
        except (StreamNotFound, StreamGone):
            return False
        return True

    # ── POST ─────────────────────────────────────────────────────────────────────────────────

    def post(self, request: Request, service: str, path: str) -> Deferred | Awaitable[Answer]:
        document = addresses.stream_of(service, path)
        if names.STREAM_CLOSED in request.headers and not request.body:
            return self._leave(request, service, path)
        name = _awareness(request) if _AWARENESS in request.query else None
        if name is not None:
            return self._post_awareness(request, document, name)
        if len(request.body) > framing.INLINE_BYTES_MAX:
            return self._post_large(request, document)
        framing.check_frames(request.body)
        return self._append(request, document)

    async def _leave(self, request: Request, service: str, path: str) -> Response:
        """The published provider closes the stream when someone leaves, but others continue."""
        view = self._log.view(await self._log.entry(_stream(request, service, path)))
        offset = view.config.lineage.token_at(view.tail)
        return Response(204, [("Stream-Next-Offset", offset), NO_STORE])

    async def _post_large(self, request: Request, document: str) -> Answer:
        await self._check_frames(request.body)
        answer = self._append(request, document)
        return await (answer.resolve() if isinstance(answer, Deferred) else answer)

    async def _check_frames(self, body: bytes) -> None:
        if len(body) > framing.INLINE_BYTES_MAX:
            await self._log.in_thread(framing.check_frames, body)
        else:
            framing.check_frames(body)

    def _append(self, request: Request, document: str) -> Deferred | Awaitable[Answer]:
        answer = self._streams.append(_typed(request), document)
        if not isinstance(answer, Deferred):
            return self._noted(answer, document)

        def render(reply: AppendReply) -> Answer:
            self._note(document)
            return append_response(reply)

        return Deferred(answer.future, render)

    async def _noted(self, answer: Awaitable[Answer], document: str) -> Answer:
        response = await answer
        self._note(document)
        return response

    def _note(self, document: str) -> None:
        entry = self._log.ready(document)
        if entry is not None:
            self._documents.written(entry)

    def _post_awareness(
        self, request: Request, document: str, name: str
    ) -> Deferred | Awaitable[Answer]:
        path = addresses.awareness_of(document, name)
        if self._documents.has_awareness(path):
            return self._streams.append(_typed(request), path)
        return self._renew_awareness(request, document, name)

    async def _renew_awareness(self, request: Request, document: str, name: str) -> Answer:
        await self._documents.renew_awareness(document, name)
        path = addresses.awareness_of(document, name)
        answer = self._streams.append(_typed(request), path)
        return await (answer.resolve() if isinstance(answer, Deferred) else answer)

    # ── GET ──────────────────────────────────────────────────────────────────────────────────

    def get(self, request: Request, service: str, path: str) -> Answer | Awaitable[Answer]:
        document = addresses.stream_of(service, path)
        query = parse_query(request.query)
        name = _only(query, "awareness")
        if name is not None:
            return self._streams.get(request, addresses.awareness_of(document, name))
        form = _only(query, "state")
        if form is not None:
            return self._content(document, form, _only(query, "name") or "")
        offset = _only(query, "offset") or ""
        if offset == addresses.SNAPSHOT:
            return self._discover(request, document, query)
        snapshot = addresses.parse_snapshot_name(offset)
        if snapshot is not None:
            return self._snapshot(document, snapshot)
        if offset in ("", BEGINNING):
            return self._beginning(request, document, query)
        return self._streams.get(request, document)

    async def _beginning(
        self, request: Request, document: str, query: dict[str, list[str]]
    ) -> Answer:
        """All updates from the first one on. If that was dropped, the snapshot replaces it.

        Pages cannot see where a redirect leads, so the published provider begins here in browsers,
        and would miss what was dropped.
        """
        is_live = _only(query, "live") == "sse"
        found = await self._documents.beginning(document)
        if found is None:
            answer = self._streams.get(request, document)
            return answer if isinstance(answer, Answer) else await answer
        if is_live:
            raise InvalidQuery("the first updates were dropped; start with offset=snapshot")
        (offset, pieces), is_all = found
        head = framing.write_number(sum(map(len, pieces)))
        headers: Headers = [
            *stored(content_types.DEFAULT),
            ("Stream-Next-Offset", str(offset)),
            *([("Stream-Up-To-Date", "true")] if is_all else []),
            NO_STORE,
        ]
        return Response(200, headers, FileBody([head, *pieces]))

    async def _discover(
        self, request: Request, document: str, query: dict[str, list[str]]
    ) -> Response:
        newest = await self._documents.newest(document)
        offset = BEGINNING if newest is None else addresses.snapshot_name(str(newest.offset))
        target = origin_form(request.path).decode("ascii", "replace")
        location = f"{target}?{urlencode({**query, 'offset': [offset]}, doseq=True)}"
        return Response(307, [("Location", location), ("Cache-Control", DISCOVERY_CACHE)])

    async def _snapshot(self, document: str, offset: str) -> Response:
        at, pieces = await self._documents.snapshot(document, offset)
        headers: Headers = [
            *stored(content_types.DEFAULT),
            ("Stream-Next-Offset", str(at)),
            ("Cache-Control", SNAPSHOT_CACHE),
        ]
        return Response(200, headers, FileBody(pieces))

    async def _content(self, document: str, form: str, name: str) -> Response:
        if form not in _FORMS:
            raise InvalidQuery("state must be json or text")
        content = await self._documents.content(document, form, name)
        headers: Headers = [
            *stored(_FORMS[form]),
            ("Stream-Next-Offset", str(content.offset)),
            NO_STORE,
        ]
        return Response(200, headers, content.body)

    # ── HEAD, DELETE ─────────────────────────────────────────────────────────────────────────

    async def head(self, request: Request, service: str, path: str) -> Response:
        return await self._streams.head(request, _stream(request, service, path))

    async def delete(self, request: Request, service: str, path: str) -> Response:
        document = addresses.stream_of(service, path)
        name = _awareness(request)
        if name is not None:
            return await self._streams.delete(request, addresses.awareness_of(document, name))
        return await self._streams.delete(request, document)


def _stream(request: Request, service: str, path: str) -> str:
    """The stream that a request is for."""
    document, name = addresses.stream_of(service, path), _awareness(request)
    return document if name is None else addresses.awareness_of(document, name)


def _awareness(request: Request) -> str | None:
    return _only(parse_query(request.query), "awareness")


def _only(query: dict[str, list[str]], name: str) -> str | None:
    values = query.get(name)
    if values is not None and len(values) > 1:
        raise InvalidQuery(f"send one {name}, not several")
    return None if values is None else values[0]


def _typed(request: Request) -> Request:
    """Documents have a single type, so it may be omitted, and nobody closes one for the others."""
    headers = request.headers
    if names.CONTENT_TYPE not in headers:
        headers = {**headers, names.CONTENT_TYPE: content_types.DEFAULT.encode()}
    if names.STREAM_CLOSED in headers and request.method == "POST":
        headers = {name: value for name, value in headers.items() if name != names.STREAM_CLOSED}
    request.headers = headers
    return request


def _check_settings(request: Request, *, is_new: bool) -> None:
    """Refuse settings that no document can have; others that do not match are a conflict."""
    for name in _NOT_FOR_DOCUMENTS if is_new else (names.STREAM_CONFIG_VERSION,):
        if name in request.headers:
            raise InvalidHeader(name.decode().title(), "is not for documents; leave it out")
    content_type = request.header(names.CONTENT_TYPE) or ""
    if is_new and content_types.media_type(content_type) != content_types.DEFAULT:
        raise InvalidHeader("Content-Type", f"documents are {content_types.DEFAULT}")
