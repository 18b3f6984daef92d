"""Consumer groups over HTTP: /v1/stream/{path}/_groups…"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

import msgspec

from headwater.core.access import Permission
from headwater.core.errors import InvalidQuery, OwnedElsewhere, StreamGone, StreamNotFound
from headwater.core.groups.commands import RECEIPTS_MAX, Ack, Command, Extend, Nack, Reject
from headwater.core.groups.config import parse_wanted
from headwater.core.groups.decisions import Outcome
from headwater.core.json_bodies import decode_body, decode_with
from headwater.core.limits import LIST_PAGE_MAX
from headwater.http.answers import EVENT_HEADERS, JSON_LINES, done, encoded_json, json_answer
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Request,
    Shortcut,
    Sink,
)
from headwater.http.queries import number_between, number_in, query_of
from headwater.http.resources.group_members import Fetch, Push, stale_json
from headwater.service.groups.group import Group
from headwater.service.groups.operations import Groups
from headwater.service.replies import Reply, Waiter

FETCH_MAX: Final = 1_000
STREAMS_MAX: Final = 100
_PUSH_DEFAULT: Final = 100

Consumer = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Later = Deferred | Awaitable[Answer]


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    consumer: Consumer
    max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    ack: Annotated[list[str], msgspec.Meta(max_length=RECEIPTS_MAX)] | None = None
    """Receipts that the member has finished."""


_FETCH: Final = msgspec.json.Decoder(FetchBody)
_ACK: Final = msgspec.json.Decoder(Ack)


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    to: str


class GroupResource:
    def __init__(self, groups: Groups, heartbeat: Heartbeat) -> None:
        self._groups = groups
        self._heartbeat = heartbeat
        self.elsewhere: Callable[[str, int], Awaitable[list[msgspec.Raw]]] | None = None
        """In a cluster: asks the owner of a stream for its groups."""

    # ── The group itself ─────────────────────────────────────────────────────────────────────

    async def index(self, request: Request, path: str) -> Answer:
        return json_answer({"groups": await self._groups.infos(path)})

    async def everywhere(self, request: Request) -> Answer:
        """Groups of all streams that the caller may read, stream by stream.

        A page ends with the stream that fills it, so its size is bounded by what one stream may
        have.
        """
        query = query_of(request)
        limit = number_between(query, "limit", 1, STREAMS_MAX, default=STREAMS_MAX)
        after = number_in(query, "after") if "after" in query else 0
        found = await self._groups.streams(after, limit)
        shown, groups = [], 0
        following = found[-1][0] if len(found) == limit else None
        for number, path in found:
            if path is None:
                continue
            if request.caller is None or request.caller.grants.allow(Permission.READ, path):
                infos = await self._shown(path)
                shown += [{"stream": path, "groups": infos}] if infos else []
                groups += len(infos)
            if groups >= LIST_PAGE_MAX and number != found[-1][0]:
                following = number
                break
        return json_answer({"streams": shown, "next": following})

    async def _shown(self, path: str) -> Sequence[object]:
        """The groups of a stream; empty if it is being deleted."""
        try:
            return await self._groups.infos(path)
        except (StreamNotFound, StreamGone):
            return []
        except OwnedElsewhere as error:
            if self.elsewhere is None:
                raise
            return await self.elsewhere(path, error.shard)

    async def get(self, request: Request, path: str, name: str) -> Answer:
        query = query_of(request)
        if query.get("live") == "sse":
            return await self._push(path, name, query)
        group = await self._groups.get(path, name)
        return json_answer(await self._groups.info(group))

    async def put(self, request: Request, path: str, name: str) -> Answer:
        config, named = parse_wanted(request.body)
        if config.dead_letter is not None:
            request.demand(Permission.WRITE, config.dead_letter)
        group, new = await self._groups.put(path, name, config, named)
        return json_answer(await self._groups.info(group), 201 if new else 200)

    async def delete(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.delete(path, name)
        return done()

    async def _push(self, path: str, name: str, query: dict[str, str]) -> Answer:
        consumer = query.get("consumer", "")
        if not 1 <= len(consumer) <= 256:
            raise InvalidQuery("name yourself with consumer=…, 1 to 256 characters")
        most = number_between(query, "max", 1, FETCH_MAX, default=_PUSH_DEFAULT)
        group = await self._groups.get(path, name)
        push = Push(group, consumer, most)

        def start(sink: Sink) -> None:
            push.start(sink)
            self._heartbeat.add(push)

        return EventStream(list(EVENT_HEADERS), start, push.stopped)

    # ── Work of members ──────────────────────────────────────────────────────────────────────

    def fetch(self, request: Request, path: str, name: str) -> Later:
        _shorten(request, Fetches(self._groups, path, name))
        body = decode_with(_FETCH, request.body)
        group = self._groups.ready(path, name)
        if group is None:
            return self._fetch_cold(request, path, name, body)
        fetched: Reply[bytes] = Reply()
        _fetch(group, request, body, fetched)
        return Deferred(fetched, encoded_json)

    async def _fetch_cold(self, request: Request, path: str, name: str, body: FetchBody) -> Answer:
        left: list[bool] = []
        request.on_disconnect = lambda: left.append(True)
        group = await self._groups.get(path, name)
        fetched: Reply[bytes] = Reply()
        _fetch(group, request, body, fetched)
        if left and request.on_disconnect is not None:
            # The member hung up while its group was being loaded. Its acknowledgements still count.
            request.on_disconnect()
        return encoded_json(await fetched)

    def ack(self, request: Request, path: str, name: str) -> Later:
        _shorten(request, Acknowledgements(self._groups, path, name))
        return self._settle(path, name, _acked, decode_with(_ACK, request.body))

    def nack(self, request: Request, path: str, name: str) -> Later:
        return self._settle(path, name, _nacked, decode_body(request.body, Nack))

    def extend(self, request: Request, path: str, name: str) -> Later:
        return self._settle(path, name, _extended, decode_body(request.body, Extend))

    def reject(self, request: Request, path: str, name: str) -> Later:
        return self._settle(path, name, _rejected, decode_body(request.body, Reject))

    def _settle(
        self, path: str, name: str, render: Callable[[Outcome], Answer], command: Command
    ) -> Later:
        group = self._groups.ready(path, name)
        if group is None:
            return self._settle_cold(path, name, command, render)
        return Deferred(group.settle(command), render)

    async def _settle_cold(
        self, path: str, name: str, command: Command, render: Callable[[Outcome], Answer]
    ) -> Answer:
        group = await self._groups.get(path, name)
        return render(await group.settle(command))

    async def seek(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.seek(path, name, decode_body(request.body, SeekBody).to)
        return done()

    async def pause(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=True)
        return done()

    async def resume(self, request: Request, path: str, name: str) -> Answer:
        await self._groups.pause(path, name, paused=False)
        return done()


def _fetch(group: Group, request: Request, body: FetchBody, waiter: Waiter) -> None:
    acked = None if body.ack is None else group.settle(Ack(body.ack))
    fetch = Fetch(group, body.consumer, body.max, body.wait_ms, acked, waiter)
    request.wait(fetch.hang_up)
    fetch.start()


def _rendering(word: str) -> Callable[[Outcome], Answer]:
    """How the outcome of a command is shown."""
    template = b'{"%b":%%d,"stale":%%b}' % word.encode()

    def render(outcome: Outcome) -> Answer:
        return encoded_json(template % (len(outcome.done), stale_json(outcome)))

    return render


class _GroupShortcut:
    """Fetches and acknowledgements while the group is in memory."""

    __slots__ = ("_name", "_path", "_ready")
    status = 200

    def __init__(self, groups: Groups, path: str, name: str) -> None:
        self._ready = groups.ready
        self._path = path
        self._name = name


class Fetches(_GroupShortcut):
    """The `Shortcut` of fetches."""

    __slots__ = ()

    def take(self, request: Request, waiter: Waiter) -> bool:
        group = self._ready(self._path, self._name)
        if group is not None:
            _fetch(group, request, decode_with(_FETCH, request.body), waiter)
        return group is not None

    def render(self, outcome: bytes) -> tuple[bytes, bytes]:
        return JSON_LINES, outcome


class Acknowledgements(_GroupShortcut):
    """The `Shortcut` of acknowledgements."""

    __slots__ = ()

    def take(self, request: Request, waiter: Waiter) -> bool:
        group = self._ready(self._path, self._name)
        if group is not None:
            group.acknowledge(decode_with(_ACK, request.body), waiter)
        return group is not None

    def render(self, outcome: Outcome) -> tuple[bytes, bytes]:
        shown = b'{"acked":%d,"stale":%b}' % (len(outcome.done), stale_json(outcome))
        return JSON_LINES, shown


def _shorten(request: Request, shortcut: Shortcut) -> None:
    """Let the next requests with this head take a shortcut, where nothing else has to see them."""
    if request.head is not None and request.head.handler is not None:
        request.head.shortcut = shortcut


_acked, _nacked = _rendering("acked"), _rendering("nacked")
_extended, _rejected = _rendering("extended"), _rendering("rejected")
