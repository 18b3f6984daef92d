"""Consumer groups over HTTP: /v1/stream/{path}/_groups…"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from headwater.core.access import Permission
from headwater.core.errors import InvalidQuery
from headwater.core.groups import transitions
from headwater.core.groups.config import parse_config
from headwater.core.groups.state import GroupState
from headwater.core.groups.transitions import Outcome
from headwater.http.beats import Heartbeat
from headwater.http.bodies import read_body
from headwater.http.errors import plain_error
from headwater.http.members import JSON_HEADERS, Fetch, Push
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Headers,
    Request,
    Response,
    Sink,
)
from headwater.http.queries import number_in, query_of
from headwater.service.groups.group import Group
from headwater.service.groups.operations import Groups

FETCH_MAX: Final = 1_000
RECEIPTS_MAX: Final = 10_000
_PUSH_DEFAULT: Final = 100

Consumer = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Receipts = Annotated[list[str], msgspec.Meta(min_length=1, max_length=RECEIPTS_MAX)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
Later = Deferred | Awaitable[Answer]
Operation = Callable[[GroupState, int], Outcome]


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    consumer: Consumer
    max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    ack: Annotated[list[str], msgspec.Meta(max_length=RECEIPTS_MAX)] | None = None
    """What the member is done with."""


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: Receipts


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: Receipts
    delay_ms: Milliseconds = 0
    count: bool = True


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    receipts: Receipts
    ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    to: str


class GroupResource:
    def __init__(self, groups: Groups, heartbeat: Heartbeat) -> None:
        self._groups = groups
        self._heartbeat = heartbeat
        self._actions: dict[str, Callable[[Request, str, str], Later]] = {
            "fetch": self._fetch,
            "ack": self._ack,
            "nack": self._nack,
            "extend": self._extend,
            "reject": self._reject,
            "seek": self._seek,
            "pause": self._pause,
            "resume": self._resume,
        }

    def handle(self, request: Request, path: str, rest: tuple[str, ...]) -> Later:
        match request.method, rest:
            case "GET" | "HEAD", []:
                return self._list(path)
            case "GET" | "HEAD", [name]:
                return self._get(request, path, name)
            case "PUT", [name]:
                return self._put(request, path, name)
            case "DELETE", [name]:
                return self._delete(path, name)
            case "POST", [name, action] if action in self._actions:
                return self._actions[action](request, path, name)
        return _not_here(rest)

    # ── The group itself ─────────────────────────────────────────────────────────────────────

    async def _list(self, path: str) -> Answer:
        stream = await self._groups.of(path)
        infos = [await self._groups.info(group) for group in list(stream.groups.values())]
        return Response(200, list(JSON_HEADERS), msgspec.json.encode({"groups": infos}))

    async def _get(self, request: Request, path: str, name: str) -> Answer:
        query = query_of(request)
        if query.get("live") == "sse":
            return await self._push(path, name, query)
        group = await self._groups.get(path, name)
        return Response(
            200, list(JSON_HEADERS), msgspec.json.encode(await self._groups.info(group))
        )

    async def _put(self, request: Request, path: str, name: str) -> Answer:
        config = parse_config(request.body)
        if config.dead_letter is not None:
            request.demand(Permission.WRITE, config.dead_letter)
        group, new = await self._groups.put(path, name, config)
        body = msgspec.json.encode(await self._groups.info(group))
        return Response(201 if new else 200, list(JSON_HEADERS), body)

    async def _delete(self, path: str, name: str) -> Answer:
        await self._groups.delete(path, name)
        return Response(204, [("Cache-Control", "no-store")])

    async def _push(self, path: str, name: str, query: dict[str, str]) -> Answer:
        consumer = query.get("consumer", "")
        if not 1 <= len(consumer) <= 256:
            raise InvalidQuery("name yourself with consumer=…, 1 to 256 characters")
        most = number_in(query, "max") if "max" in query else _PUSH_DEFAULT
        if not 1 <= most <= FETCH_MAX:
            raise InvalidQuery(f"max must be a number from 1 to {FETCH_MAX}")
        group = await self._groups.get(path, name)
        push = Push(group, consumer, most)

        def start(sink: Sink) -> None:
            push.start(sink)
            self._heartbeat.add(push)

        headers: Headers = [
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
            ("X-Accel-Buffering", "no"),
        ]
        return EventStream(headers, start, push.stopped)

    # ── Members' work ────────────────────────────────────────────────────────────────────────

    def _fetch(self, request: Request, path: str, name: str) -> Awaitable[Answer]:
        body = read_body(request, FetchBody)
        group = self._groups.ready(path, name)
        if group is None:
            return self._fetch_cold(request, path, name, body)
        return self._fetch_from(group, request, body)

    async def _fetch_cold(self, request: Request, path: str, name: str, body: FetchBody) -> Answer:
        left: list[bool] = []
        request.on_disconnect = lambda: left.append(True)
        group = await self._groups.get(path, name)
        fetched = self._fetch_from(group, request, body)
        if left and request.on_disconnect is not None:
            # The member hung up while its group was being loaded. What it is done with counts.
            request.on_disconnect()
        return await fetched

    def _fetch_from(
        self, group: Group, request: Request, body: FetchBody
    ) -> asyncio.Future[Answer]:
        acked = None
        if body.ack is not None:
            receipts = body.ack
            acked = self._groups.settle(group, lambda state, _: transitions.ack(state, receipts))
        fetch = Fetch(group, body.consumer, body.max, body.wait_ms, acked)
        request.wait(fetch.hang_up)
        fetch.start()
        return fetch.future

    def _ack(self, request: Request, path: str, name: str) -> Later:
        body = read_body(request, AckBody)
        return self._settle(
            path, name, "acked", lambda state, _: transitions.ack(state, body.receipts)
        )

    def _nack(self, request: Request, path: str, name: str) -> Later:
        body = read_body(request, NackBody)
        return self._settle(
            path,
            name,
            "nacked",
            lambda state, now_ms: transitions.nack(
                state, body.receipts, body.delay_ms, now_ms, count=body.count
            ),
        )

    def _extend(self, request: Request, path: str, name: str) -> Later:
        body = read_body(request, ExtendBody)
        return self._settle(
            path,
            name,
            "extended",
            lambda state, now_ms: transitions.extend(state, body.receipts, body.ms, now_ms),
        )

    def _reject(self, request: Request, path: str, name: str) -> Later:
        body = read_body(request, AckBody)
        return self._settle(
            path, name, "rejected", lambda state, _: transitions.reject(state, body.receipts)
        )

    def _settle(self, path: str, name: str, word: str, operation: Operation) -> Later:
        def render(outcome: Outcome) -> Answer:
            self._groups.figures.settled[word] += len(outcome.done)
            body: dict[str, Any] = {word: len(outcome.done), "stale": outcome.stale}
            return Response(200, JSON_HEADERS, msgspec.json.encode(body))

        group = self._groups.ready(path, name)
        if group is None:
            return self._settle_cold(path, name, operation, render)
        return Deferred(self._groups.settle(group, operation), render)

    async def _settle_cold(
        self, path: str, name: str, operation: Operation, render: Callable[[Outcome], Answer]
    ) -> Answer:
        group = await self._groups.get(path, name)
        return render(await self._groups.settle(group, operation))

    async def _seek(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.seek(path, name, read_body(request, SeekBody).to)
        return Response(204, [("Cache-Control", "no-store")])

    async def _pause(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=True)
        return Response(204, [("Cache-Control", "no-store")])

    async def _resume(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=False)
        return Response(204, [("Cache-Control", "no-store")])


async def _not_here(rest: tuple[str, ...]) -> Answer:
    allowed = {0: "GET", 1: "GET, PUT, DELETE", 2: "POST"}.get(len(rest))
    if allowed is None:
        return plain_error(404, "not_found", "there is nothing below a group's actions")
    return plain_error(
        405, "method_not_allowed", f"this resource answers {allowed}", [("Allow", allowed)]
    )
