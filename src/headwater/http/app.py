"""The routes: which resource a request is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final

import msgspec

from headwater import __version__
from headwater.core.errors import InvalidQuery, StreamError
from headwater.core.limits import LIST_PAGE_MAX
from headwater.core.offsets import parse_offset
from headwater.core.paths import CONTROL_NAMES, GROUPS, PROFILE, SNAPSHOTS, check_path, split_touch
from headwater.http.bulk import BulkResource
from headwater.http.errors import error_response, plain_error
from headwater.http.groups import GroupResource
from headwater.http.headers import METHODS, preflight_headers
from headwater.http.live import Hub
from headwater.http.messages import Answer, Deferred, Headers, Request, Response
from headwater.http.queries import number_in, query_of
from headwater.http.snapshots import SnapshotResource
from headwater.http.streams import StreamResource
from headwater.http.targets import STREAM_ROOT, decode_path, origin_form
from headwater.http.touch import TouchResource
from headwater.http.transactions import TransactionResource
from headwater.service.groups import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.transactions import Transactions
from headwater.store.engine import StreamSummary

_LIST_PAGE_DEFAULT: Final = 100
_JSON: Final[Headers] = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]

Resource = Callable[[Request], Answer | Deferred | Awaitable[Answer]]


class App:
    """The handler that the connection calls for every request."""

    def __init__(
        self, log: Log, hub: Hub, groups: Groups, live: Live, *, cors: bool = True
    ) -> None:
        self._log = log
        self._preflight = [
            *(preflight_headers() if cors else [("Allow", METHODS)]),
            ("Cache-Control", "no-store"),
        ]
        self._streams = StreamResource(log, hub)
        self._groups = GroupResource(groups, hub.heartbeat)
        self._transactions = TransactionResource(log, Transactions(log, groups))
        self._touch = TouchResource(live)
        self._hub = hub
        bulk = BulkResource(log)
        self._snapshots = SnapshotResource(log)
        self._controls = {
            "_details": self._details,
            "_position": self._position,
            "_segments": bulk.segments,
            "_bulk": bulk.bulk,
            SNAPSHOTS: self._snapshots.all,
        }
        self._fixed: dict[bytes, Resource] = {
            b"/": self._index,
            b"/healthz": self._healthz,
            b"/readyz": self._readyz,
            b"/v1/streams": self._list,
        }

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        try:
            return self._route(request)
        except StreamError as error:
            return error_response(error)

    def _route(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        target = request.path if request.path[:1] == b"/" else origin_form(request.path)
        if request.method == "OPTIONS":
            return Response(204, self._preflight)
        if target.startswith(STREAM_ROOT):
            return self._stream(request, decode_path(target[len(STREAM_ROOT) :]))
        if target == b"/v1/transaction":
            if request.method != "POST":
                return _not_allowed("POST, OPTIONS")
            return self._transactions.handle(request)
        resource = self._fixed.get(target)
        if resource is None:
            return plain_error(404, "not_found", "streams live below /v1/stream/")
        if request.method not in ("GET", "HEAD"):
            return _not_allowed("GET, HEAD, OPTIONS")
        return resource(request)

    def _stream(self, request: Request, path: str) -> Answer | Deferred | Awaitable[Answer]:
        if "/_" in path:
            answer = self._below(request, path)
            if answer is not None:
                return answer
        if "/touch/" in path:
            live = split_touch(path)
            if live is not None:
                return self._touch.handle(request, check_path(live[0]), live[1])
        if request.method not in self._streams.methods:
            return _not_allowed(", ".join(sorted([*self._streams.methods, "OPTIONS"])))
        if request.method != "POST":
            # An append to a path that cannot exist is simply not found, without being parsed.
            check_path(path)
        return self._streams.handle(request, path)

    def _below(self, request: Request, path: str) -> Answer | Deferred | Awaitable[Answer] | None:
        """A control resource of a stream, or None if the path is none."""
        of_groups = _split_at_groups(path)
        if of_groups is not None:
            return self._groups.handle(request, *of_groups)
        segments = path.split("/")
        if segments[-2] == SNAPSHOTS and len(segments) > 2:
            owner = check_path("/".join(segments[:-2]))
            return self._snapshots.one(request, owner, segments[-1])
        if segments[-1] in CONTROL_NAMES and request.method != "PUT":
            return self._control(request, "/".join(segments[:-1]), segments[-1])
        return None

    def _control(
        self, request: Request, owner: str, name: str
    ) -> Answer | Deferred | Awaitable[Answer]:
        if name == PROFILE:
            return self._touch.profile(request, check_path(owner))
        control = self._controls.get(name)
        if control is None:
            return plain_error(404, "not_found", f"this server has no {name} resource")
        if request.method not in ("GET", "HEAD"):
            return _not_allowed("GET, HEAD, OPTIONS")
        return control(request, check_path(owner))

    # ── Fixed resources ──────────────────────────────────────────────────────────────────────

    def _index(self, request: Request) -> Response:
        body = (
            f"Headwater {__version__}\n\n"
            "GET  /v1/streams        the streams of this server\n"
            "PUT  /v1/stream/{path}  create one\n"
            "POST /v1/transaction    acknowledge and publish, all or nothing\n"
            "GET  /healthz           is the process alive\n"
            "GET  /readyz            does its storage answer\n"
        )
        return Response(200, [("Content-Type", "text/plain; charset=utf-8")], body.encode())

    def _healthz(self, request: Request) -> Response:
        return Response(200, list(_JSON), b'{"status":"ok"}')

    async def _readyz(self, request: Request) -> Response:
        """Ready means: the engine answers. A probe reads, so that probing costs no commit."""
        await self._log.in_thread(self._log.engine.next_stream_id)
        return Response(200, list(_JSON), b'{"status":"ready"}')

    async def _list(self, request: Request) -> Response:
        prefix, after, limit = _list_query(request)
        page = await self._log.list_streams(prefix, after, limit + 1)
        more = len(page) > limit
        body = {
            "streams": [_summary_json(summary) for summary in page[:limit]],
            "next": page[limit - 1].path if more else None,
        }
        return Response(200, list(_JSON), msgspec.json.encode(body))

    async def _position(self, request: Request, path: str) -> Response:
        """Where to start reading for the last messages or a moment, or how far to get."""
        query = query_of(request)
        if sum(name in query for name in ("last", "at", "offset")) != 1:
            raise InvalidQuery(
                "send last=COUNT, at=MILLISECONDS since 1970 or offset=OFFSET, one of the three"
            )
        if "offset" in query:
            return await self._reach(path, query)
        skip = 0
        if "last" in query:
            offset, skip = await self._log.find_last(path, number_in(query, "last"))
        else:
            offset = await self._log.find_time(path, number_in(query, "at"))
        body = msgspec.json.encode({"offset": str(offset), "skip": skip})
        return Response(200, list(_JSON), body)

    async def _reach(self, path: str, query: dict[str, str]) -> Response:
        """How far a read gets that takes in only so much, and what is left behind it."""
        reach = await self._log.reach(
            path,
            parse_offset(query["offset"]),
            number_in(query, "messages") if "messages" in query else None,
            number_in(query, "bytes") if "bytes" in query else None,
        )
        body = {
            "offset": str(reach.end),
            "messages": reach.messages,
            "bytes": reach.size_bytes,
            "tail": str(reach.tail),
            "messages_behind": reach.messages_behind,
            "closed": reach.closed,
        }
        return Response(200, list(_JSON), msgspec.json.encode(body))

    async def _details(self, request: Request, path: str) -> Response:
        entry = await self._log.entry(path)
        view, state = self._log.view(entry), entry.state
        fork = view.config.fork
        details = {
            **_summary_json(view.summary()),
            "description": view.config.description,
            "version": view.config.version,
            "profile": msgspec.to_builtins(view.config.profile)["kind"],
            "unique_ids": view.config.unique_ids.mode if view.config.unique_ids else None,
            "id_pointer": view.config.unique_ids.pointer if view.config.unique_ids else None,
            "forked_from": fork.source if fork else None,
            "forks": state.forks if state else 0,
            "producers": len(state.producers) if state else 0,
            "readers": self._hub.readers_of(entry),
        }
        return Response(200, list(_JSON), msgspec.json.encode(details))


@lru_cache(maxsize=1024)
def _split_at_groups(path: str) -> tuple[str, tuple[str, ...]] | None:
    """The stream whose groups a path is about, and what follows. Members ask again and again."""
    segments = path.split("/")
    if GROUPS not in segments[1:]:
        return None
    at = len(segments) - 1 - segments[::-1].index(GROUPS)
    return check_path("/".join(segments[:at])), tuple(segments[at + 1 :])


def _summary_json(summary: StreamSummary) -> dict[str, object]:
    return {
        "name": summary.path,
        "content_type": summary.content_type,
        "tail": summary.tail,
        "closed": summary.closed,
        "created": summary.created_at_ms,
        "size_bytes": summary.size_bytes,
        "messages": summary.messages,
        "ttl_s": summary.ttl_s,
        "expires_at": summary.expires_at_ms,
    }


def _list_query(request: Request) -> tuple[str, str, int]:
    query = query_of(request)
    limit = number_in(query, "limit") if "limit" in query else _LIST_PAGE_DEFAULT
    if not 1 <= limit <= LIST_PAGE_MAX:
        raise InvalidQuery(f"limit must be a number from 1 to {LIST_PAGE_MAX}")
    return query.get("prefix", ""), query.get("after", ""), limit


def _not_allowed(allowed: str) -> Response:
    return plain_error(
        405, "method_not_allowed", f"this resource answers {allowed}", [("Allow", allowed)]
    )
