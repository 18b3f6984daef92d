"""The routes: which resource a request is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from headwater import __version__
from headwater.core.access import Permission
from headwater.core.errors import InvalidQuery, StreamError
from headwater.core.limits import LIST_PAGE_MAX
from headwater.core.offsets import parse_offset
from headwater.core.paths import CONTROL_ROOT, GROUPS, PROFILE, SNAPSHOTS, TOUCH, check_path
from headwater.http import openapi, places
from headwater.http.access.gate import Gate
from headwater.http.access.listing import list_readable
from headwater.http.access.signing import SignResource
from headwater.http.beats import Heartbeat
from headwater.http.bulk import BulkResource
from headwater.http.console.resource import Console
from headwater.http.errors import error_response, plain_error
from headwater.http.groups import GroupResource
from headwater.http.headers import METHODS, preflight_headers
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Headers,
    Request,
    Response,
)
from headwater.http.metrics import Metrics
from headwater.http.pipelines import PipelineResource
from headwater.http.places import STREAM, Place, locate, route_of
from headwater.http.queries import number_in, query_of
from headwater.http.snapshots import SnapshotResource
from headwater.http.streams import StreamResource
from headwater.http.subscriptions import SubscriptionResource
from headwater.http.targets import SUBSCRIPTIONS_ROOT, origin_form
from headwater.http.touch import TouchResource
from headwater.http.transactions import TransactionResource
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.transactions import Transactions
from headwater.store.engine import StreamSummary

STREAM_ROUTE: Final = "/v1/stream/{path}"
_LIST_PAGE_DEFAULT: Final = 100
_JSON: Final[Headers] = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]

Reply = Answer | Deferred | Awaitable[Answer]
Resource = Callable[[Request, Place], Reply]


class App:
    """The handler that the connection calls for every request."""

    def __init__(
        self,
        log: Log,
        feeds: Feeds,
        groups: Groups,
        live: Live,
        subscriptions: Subscriptions,
        *,
        heartbeat: Heartbeat,
        long_poll_timeout_ms: int,
        cors: bool = True,
        console: bool = True,
        gate: Gate | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._log = log
        self._gate = gate
        self._preflight = [
            *(preflight_headers() if cors else [("Allow", METHODS)]),
            ("Cache-Control", "no-store"),
        ]
        self._streams = StreamResource(log, feeds, heartbeat, long_poll_timeout_ms / 1000)
        self._groups = GroupResource(groups, heartbeat)
        self._transactions = TransactionResource(log, Transactions(log, groups))
        self._touch = TouchResource(live)
        self._subscriptions = SubscriptionResource(subscriptions)
        self._feeds = feeds
        bulk = BulkResource(log)
        self._snapshots = SnapshotResource(log)
        figures = metrics or Metrics()
        pipelines = PipelineResource(log.clock)
        self.resources: dict[str, Resource] = {
            places.STREAM: self._stream,
            CONTROL_ROOT: self._reserved,
            GROUPS: self._group,
            "_details": _reading(_of_stream(self._details)),
            "_position": _reading(_of_stream(self._position)),
            "_segments": _reading(_of_stream(bulk.segments)),
            "_bulk": _reading(_of_stream(bulk.bulk)),
            SNAPSHOTS: self._snapshots_of,
            PROFILE: _of_stream(self._touch.profile),
            TOUCH: self._touch_of,
            places.TRANSACTION: _posting(lambda request, _: self._transactions.handle(request)),
            places.LIST: _reading(self._list),
            places.PIPELINES: lambda request, _: pipelines.handle(request),
            places.INDEX: _reading(self._index),
            places.HEALTH: _reading(self._healthz),
            places.READY: _reading(self._readyz),
            places.METRICS: _reading(lambda request, _: figures.handle(request)),
            places.OPENAPI: _reading(self._openapi),
        }
        """By kind of place. Each kind has its permission in `headwater.http.access.rules`."""
        if console:
            page = Console()
            self.resources[places.CONSOLE] = _reading(
                lambda request, place: page.handle(request, place.rest[0])
            )
        if gate is not None and gate.identity is not None:
            signing = SignResource(gate.identity.secret, log.clock)
            self.resources[places.SIGN] = _posting(lambda request, _: signing.handle(request))
        self._routes = {kind: route_of(kind) for kind in self.resources}

    def __call__(self, request: Request) -> Reply:
        try:
            return self._route(request)
        except StreamError as error:
            return error_response(error)

    def screen(self, request: Request) -> Response | None:
        """Bodies of strangers are not read."""
        if self._gate is None:
            return None
        try:
            self._gate.screen(request, locate(request.method, request.path))
        except StreamError as error:
            return error_response(error)
        return None

    def _route(self, request: Request) -> Reply:
        place = locate(request.method, request.path)
        if request.method == "OPTIONS":
            return Response(204, self._preflight)
        request.route = self._routes.get(place.kind, request.route)
        if self._gate is not None:
            waiting = self._gate.admit(request, place)
            if waiting is not None:
                return self._dispatch_after(waiting, request, place)
        return self._dispatch(request, place)

    def _dispatch(self, request: Request, place: Place) -> Reply:
        resource = self.resources.get(place.kind)
        if resource is not None:
            return resource(request, place)
        if place.path:
            return plain_error(404, "not_found", f"this server has no {place.kind} resource")
        return plain_error(404, "not_found", "streams live below /v1/stream/")

    async def _dispatch_after(
        self, waiting: Awaitable[None], request: Request, place: Place
    ) -> Answer:
        await waiting
        reply = self._dispatch(request, place)
        if isinstance(reply, Deferred):
            return await reply.resolve()
        return reply if isinstance(reply, Response | EventStream) else await reply

    # ── Streams ──────────────────────────────────────────────────────────────────────────────

    def _stream(self, request: Request, place: Place) -> Reply:
        if request.method not in self._streams.methods:
            return _not_allowed(", ".join(sorted([*self._streams.methods, "OPTIONS"])))
        if request.method != "POST":
            # An append to a path that cannot exist is simply not found, without being parsed.
            check_path(place.path)
        return self._streams.handle(request, place.path)

    def _reserved(self, request: Request, place: Place) -> Reply:
        """Subscriptions, and nothing else: below the reserved name there never is a stream."""
        target = request.path if request.path[:1] == b"/" else origin_form(request.path)
        if target.startswith(SUBSCRIPTIONS_ROOT):
            return self._subscriptions.handle(request, target[len(SUBSCRIPTIONS_ROOT) :])
        return self._stream(request, Place(STREAM, "/".join((CONTROL_ROOT, *place.rest))))

    def _group(self, request: Request, place: Place) -> Reply:
        return self._groups.handle(request, check_path(place.path), place.rest)

    def _snapshots_of(self, request: Request, place: Place) -> Reply:
        path = check_path(place.path)
        if place.rest:
            return self._snapshots.one(request, path, place.rest[0])
        if request.method not in ("GET", "HEAD"):
            return _not_allowed("GET, HEAD, OPTIONS")
        return self._snapshots.all(request, path)

    def _touch_of(self, request: Request, place: Place) -> Reply:
        return self._touch.handle(request, check_path(place.path), place.rest[0])

    # ── Fixed resources ──────────────────────────────────────────────────────────────────────

    def _index(self, request: Request, place: Place) -> Response:
        if places.CONSOLE in self.resources and "text/html" in (request.header(b"accept") or ""):
            return Response(303, [("Location", places.CONSOLE), ("Cache-Control", "no-store")])
        body = (
            f"Headwater {__version__}\n\n"
            "GET  /v1/streams        the streams of this server\n"
            "PUT  /v1/stream/{path}  create one\n"
            "POST /v1/transaction    acknowledge and publish, all or nothing\n"
            "GET  /v1/stream/__ds/subscriptions  who is woken when streams have something new\n"
            "GET  /v1/pipelines      how far pipelines are\n"
            "GET  /healthz           is the process alive\n"
            "GET  /readyz            does its storage answer\n"
            "GET  /metrics           figures for Prometheus\n"
            "GET  /openapi.json      all of this for machines\n"
            "GET  /console/          all of this for people, in a browser\n"
        )
        return Response(200, [("Content-Type", "text/plain; charset=utf-8")], body.encode())

    def _healthz(self, request: Request, place: Place) -> Response:
        return Response(200, list(_JSON), b'{"status":"ok"}')

    async def _readyz(self, request: Request, place: Place) -> Response:
        """Ready means: the engine answers. A probe reads, so that probing costs no commit."""
        await self._log.in_thread(self._log.engine.streams.next_id)
        return Response(200, list(_JSON), b'{"status":"ready"}')

    def _openapi(self, request: Request, place: Place) -> Response:
        return Response(200, list(_JSON), openapi.document())

    async def _list(self, request: Request, place: Place) -> Response:
        prefix, after, limit = _list_query(request)
        if request.caller is None:
            page = await self._log.list_streams(prefix, after, limit + 1)
        else:
            page = await list_readable(self._log, request.caller, prefix, after, limit + 1)
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
        fork, retention = view.config.fork, view.config.retention
        details = {
            **_summary_json(view.summary()),
            "description": view.config.description,
            "version": view.config.version,
            "profile": msgspec.to_builtins(view.config.profile)["kind"],
            "unique_ids": view.config.unique_ids.mode if view.config.unique_ids else None,
            "id_pointer": view.config.unique_ids.pointer if view.config.unique_ids else None,
            "retention_s": retention.age_s if retention else None,
            "retention_bytes": retention.size_bytes if retention else None,
            "earliest": str(view.config.lineage.offset_at(view.config.kept_from)),
            "forked_from": fork.source if fork and _may_see(request, fork.source) else None,
            "forks": state.forks if state else 0,
            "producers": len(state.producers) if state else 0,
            "readers": self._feeds.readers_of(entry),
        }
        return Response(200, list(_JSON), msgspec.json.encode(details))


def _may_see(request: Request, path: str) -> bool:
    caller = request.caller
    return caller is None or caller.grants.allow(Permission.READ, path)


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


def _of_stream(resource: Callable[[Request, str], Reply]) -> Resource:
    """A resource that belongs to one stream and has nothing below it."""

    def of_stream(request: Request, place: Place) -> Reply:
        return resource(request, check_path(place.path))

    return of_stream


def _reading(resource: Resource) -> Resource:
    """A resource that is only looked at."""

    def checked(request: Request, place: Place) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return _not_allowed("GET, HEAD, OPTIONS")
        return resource(request, place)

    return checked


def _posting(resource: Resource) -> Resource:
    def checked(request: Request, place: Place) -> Reply:
        if request.method != "POST":
            return _not_allowed("POST, OPTIONS")
        return resource(request, place)

    return checked


def _not_allowed(allowed: str) -> Response:
    return plain_error(
        405, "method_not_allowed", f"this resource answers {allowed}", [("Allow", allowed)]
    )
