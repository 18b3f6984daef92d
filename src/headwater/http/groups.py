"""Consumer groups over HTTP: /v1/stream/{path}/_groups…"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from headwater.core.errors import InvalidBody, InvalidQuery, StreamError
from headwater.core.groups import transitions
from headwater.core.groups.config import parse_config
from headwater.core.groups.state import GroupState, Outstanding, format_receipt
from headwater.core.groups.transitions import Outcome
from headwater.core.unique_ids import pointer_steps, resolve
from headwater.http import sse
from headwater.http.beats import Heartbeat
from headwater.http.errors import plain_error
from headwater.http.messages import (
    Answer,
    EventStream,
    Headers,
    Payload,
    Request,
    Response,
    Sink,
)
from headwater.http.queries import number_in, query_of
from headwater.service.group import Delivery, Group
from headwater.service.groups import Groups

FETCH_MAX: Final = 1_000
RECEIPTS_MAX: Final = 10_000
_JSON: Final[Headers] = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
_PUSH_DEFAULT: Final = 100

Consumer = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Receipts = Annotated[list[str], msgspec.Meta(min_length=1, max_length=RECEIPTS_MAX)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
B = TypeVar("B")


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    consumer: Consumer
    max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0


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


def read_body(request: Request, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidBody("send a JSON object") from None


def message_json(group: Group, delivery: Delivery) -> bytes:
    """One delivered message. The value goes in as it was sent, byte for byte."""
    message, data = delivery
    config = group.entry.require_view().config
    head = {
        "id": _message_id(group, message, data),
        "offset": str(config.lineage.offset_at(message.ref.start)),
        "deliveries": message.deliveries,
        "receipt": format_receipt(group.state.record.id, message),
    }
    if config.is_json:
        return msgspec.json.encode({**head, "value": msgspec.Raw(data)})
    return msgspec.json.encode({**head, "data": b64encode(data).decode()})


def _message_id(group: Group, message: Outstanding, data: bytes) -> str:
    """The message's own id where the stream has one in it, else its number in the stream."""
    rule = group.entry.require_view().config.unique_ids
    if rule is not None and rule.pointer is not None:
        return str(resolve(msgspec.json.decode(data), pointer_steps(rule.pointer)))
    return str(message.ref.number)


class Fetch:
    """A fetch that waits for messages."""

    def __init__(self, body: FetchBody) -> None:
        self.consumer = body.consumer
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.group: Group | None = None
        self._max = body.max

    @property
    def demand(self) -> int:
        return 0 if self.future.done() else self._max

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        assert self.group is not None
        self.group.leave(self)
        if self.future.done():
            # The member hung up in this very moment; these go back as if nothing had happened.
            self.group.take_back([message for message, _ in deliveries])
            return
        messages = b",".join([message_json(self.group, delivery) for delivery in deliveries])
        body = b'{"messages":[%b],"lag":%d}' % (messages, lag)
        self.future.set_result(Response(200, list(_JSON), body))

    def fail(self, error: StreamError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def hang_up(self) -> None:
        self.future.cancel()

    def give_up(self) -> None:
        """Time is up: an empty answer."""
        if self.group is not None:
            self.group.leave(self)
        if not self.future.done():
            lag = self.group.lag if self.group else 0
            body = b'{"messages":[],"lag":%d}' % lag
            self.future.set_result(Response(200, list(_JSON), body))


class Push:
    """A member that messages are pushed to over an event stream."""

    def __init__(self, group: Group, consumer: str, most: int) -> None:
        self.consumer = consumer
        self.sink: Sink | None = None
        self.gone = False
        self._group = group
        self._most = most

    @property
    def demand(self) -> int:
        return max(0, self._most - self._group.state.held.get(self.consumer, 0))

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self._group.enlist(self)

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        assert self.sink is not None
        for delivery in deliveries:
            event = sse.message_event(message_json(self._group, delivery))
            if not self.sink.send(Payload(event)):
                return

    def fail(self, error: StreamError) -> None:
        self.end()

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()

    def stopped(self) -> None:
        """The connection is closed: what this member held goes to others at once."""
        if self.gone:
            return
        self.gone = True
        self._group.leave(self)
        if not self._group.gone:
            self._group.release(self.consumer)


class GroupResource:
    def __init__(self, groups: Groups, heartbeat: Heartbeat) -> None:
        self._groups = groups
        self._heartbeat = heartbeat
        self._actions: dict[str, Callable[[Request, str, str], Awaitable[Answer]]] = {
            "fetch": self._fetch,
            "ack": self._ack,
            "nack": self._nack,
            "extend": self._extend,
            "reject": self._reject,
            "seek": self._seek,
            "pause": self._pause,
            "resume": self._resume,
        }

    def handle(self, request: Request, path: str, rest: list[str]) -> Awaitable[Answer]:
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
        return Response(200, list(_JSON), msgspec.json.encode({"groups": infos}))

    async def _get(self, request: Request, path: str, name: str) -> Answer:
        query = query_of(request)
        if query.get("live") == "sse":
            return await self._push(path, name, query)
        group = await self._groups.get(path, name)
        return Response(200, list(_JSON), msgspec.json.encode(await self._groups.info(group)))

    async def _put(self, request: Request, path: str, name: str) -> Answer:
        group, new = await self._groups.put(path, name, parse_config(request.body))
        body = msgspec.json.encode(await self._groups.info(group))
        return Response(201 if new else 200, list(_JSON), body)

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

    async def _fetch(self, request: Request, path: str, name: str) -> Answer:
        body = read_body(request, FetchBody)
        fetch = Fetch(body)
        fetch.group = await self._groups.get(path, name)
        request.on_disconnect = fetch.hang_up
        fetch.group.enlist(fetch)
        loop = asyncio.get_running_loop()
        if body.wait_ms == 0:
            # One run of the hand-out, then whatever there is.
            fetch.group.after_pump(fetch.give_up)
            return await fetch.future
        timer = loop.call_later(body.wait_ms / 1000, fetch.give_up)
        try:
            return await fetch.future
        finally:
            timer.cancel()
            fetch.group.leave(fetch)

    async def _ack(self, request: Request, path: str, name: str) -> Answer:
        body = read_body(request, AckBody)
        return await self._settle(
            path, name, "acked", lambda state, _: transitions.ack(state, body.receipts)
        )

    async def _nack(self, request: Request, path: str, name: str) -> Answer:
        body = read_body(request, NackBody)
        return await self._settle(
            path,
            name,
            "nacked",
            lambda state, now_ms: transitions.nack(
                state, body.receipts, body.delay_ms, now_ms, count=body.count
            ),
        )

    async def _extend(self, request: Request, path: str, name: str) -> Answer:
        body = read_body(request, ExtendBody)
        return await self._settle(
            path,
            name,
            "extended",
            lambda state, now_ms: transitions.extend(state, body.receipts, body.ms, now_ms),
        )

    async def _reject(self, request: Request, path: str, name: str) -> Answer:
        body = read_body(request, AckBody)
        return await self._settle(
            path, name, "rejected", lambda state, _: transitions.reject(state, body.receipts)
        )

    async def _settle(
        self, path: str, name: str, word: str, operation: Callable[[GroupState, int], Outcome]
    ) -> Answer:
        outcome = await self._groups.settle(path, name, operation)
        self._groups.figures.settled[word] += len(outcome.done)
        body: dict[str, Any] = {word: len(outcome.done), "stale": outcome.stale}
        return Response(200, list(_JSON), msgspec.json.encode(body))

    async def _seek(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.seek(path, name, read_body(request, SeekBody).to)
        return Response(204, [("Cache-Control", "no-store")])

    async def _pause(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=True)
        return Response(204, [("Cache-Control", "no-store")])

    async def _resume(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=False)
        return Response(204, [("Cache-Control", "no-store")])


async def _not_here(rest: list[str]) -> Answer:
    allowed = {0: "GET", 1: "GET, PUT, DELETE", 2: "POST"}.get(len(rest))
    if allowed is None:
        return plain_error(404, "not_found", "there is nothing below a group's actions")
    return plain_error(
        405, "method_not_allowed", f"this resource answers {allowed}", [("Allow", allowed)]
    )
