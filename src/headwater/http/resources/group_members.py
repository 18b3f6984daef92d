"""Members that receive messages from a group: a waiting fetch, or an open event stream."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Final

import msgspec

from headwater.core.errors import OwnedElsewhere, StreamError
from headwater.core.groups.decisions import Outcome
from headwater.core.groups.state import RECEIPT, Outstanding
from headwater.core.limits import FETCH_BYTES_MAX, PUSH_BYTES_MAX
from headwater.core.lineage import Lineage
from headwater.core.pointers import pointer_steps
from headwater.core.unique_ids import id_at
from headwater.http.feeds import sse
from headwater.http.messages import Payload, Sink
from headwater.service.groups.group import Group
from headwater.service.groups.members import Delivery, Ending
from headwater.service.groups.messages import Origin
from headwater.service.replies import Reply, Waiter

_DELIVERY: Final = b'{"id":%b,%b"deliveries":%d,"receipt":"' + RECEIPT + b'",'
_VALUE: Final = _DELIVERY + b'"value":%b}'
_DATA: Final = _DELIVERY + b'"data":"%b"}'


def messages_json(group: Group, deliveries: list[Delivery]) -> list[bytes]:
    """Delivered messages. The value is included as it was sent, byte for byte.

    There are hundreds at a time and most fields need no escaping, so the JSON is assembled here.
    """
    config, group_id = group.entry.require_view().config, group.state.record.id
    rule, content = config.unique_ids, _VALUE if config.is_json else _DATA
    pointer = rule.pointer if rule is not None else None
    rendered: list[bytes] = []
    known_start, about, given_id = -1, b"", None
    for message, data in deliveries:
        number, start, _ = message.ref
        if start != known_start:
            known_start = start
            about, given_id = _label(config.lineage, start, group.origins.get(start))
        if given_id is not None:
            message_id = given_id
        else:
            message_id = b'"%d"' % number if pointer is None else _own_id(data, pointer)
        shown = data if content is _VALUE else b64encode(data)
        rendered.append(
            content
            % (message_id, about, message.deliveries, group_id, number, message.token, shown)
        )
    return rendered


def _label(lineage: Lineage, start: int, origin: Origin | None) -> tuple[bytes, bytes | None]:
    """The offset, time and producer of an append, as fields, and its id from a header."""
    if origin is not None and origin.label is not None:
        return origin.label
    about = b'"offset":"%b",' % lineage.token_at(start).encode()
    if origin is None:
        return about, None
    append = origin.append
    about += b'"time":%d,' % append.at_ms
    if append.producer is not None:
        about += b'"producer":%b,' % msgspec.json.encode(append.producer._asdict())
    named = append.message_id
    origin.label = about, None if named is None else msgspec.json.encode(named)
    return origin.label


def _own_id(data: bytes, pointer: str) -> bytes:
    """The id inside a message, as JSON."""
    own = str(id_at(data, pointer_steps(pointer)))
    return msgspec.json.encode(own)


def stale_json(outcome: Outcome) -> bytes:
    return msgspec.json.encode(outcome.stale) if outcome.stale else b"[]"


class Fetch:
    """A fetch that waits for messages.

    Receipts that came with it are already being committed, whatever happens to the fetch. The
    answer covers both, so it waits for both.
    """

    __slots__ = (
        "_acked",
        "_given",
        "_group",
        "_most",
        "_over",
        "_timer",
        "_wait_ms",
        "_waiter",
        "consumer",
    )
    most_bytes = FETCH_BYTES_MAX

    def __init__(
        self,
        group: Group,
        consumer: str,
        most: int,
        wait_ms: int,
        acked: Reply[Outcome] | None,
        waiter: Waiter,
    ) -> None:
        """The waiter is settled with the answer, as JSON."""
        self.consumer = consumer
        self._waiter = waiter
        self._group = group
        self._acked = acked
        self._over = False
        """Whether the answer is decided."""
        self._most = most
        self._given: list[Outstanding] = []
        self._wait_ms = wait_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._group.enlist(self)
        # A fetch that is served at once needs no timer.
        self._group.after_pump(self._begin_to_wait)

    def _begin_to_wait(self) -> None:
        if self._wait_ms == 0:
            self.give_up()
        elif not self._over:
            delay_s = self._wait_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.give_up)

    @property
    def demand(self) -> int:
        return 0 if self._over else self._most

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        given = [message for message, _ in deliveries]
        if self._over:
            # The member just hung up; take these back as if nothing had happened.
            self._group.take_back(given)
            return
        self._given = given
        self._answer(b",".join(messages_json(self._group, deliveries)), lag)

    def fail(self, error: StreamError) -> None:
        if self._acked is not None and isinstance(error, OwnedElsewhere):
            # It must not be forwarded: its receipts would be stale there. The next one is.
            self.give_up()
        elif not self._over:
            self._leave()
            self._waiter.settle(error)

    def hang_up(self) -> None:
        """The member is gone, and has not seen what it may have been given."""
        if self._given:
            self._group.take_back(self._given)
        if not self._over:
            self._leave()
            # Not at once: if the server hangs up, it says why.
            asyncio.get_running_loop().call_soon(self._settle, b"", self._group.lag)

    def give_up(self) -> None:
        """Time is up: an empty answer."""
        if not self._over:
            self._answer(b"", self._group.lag)

    def _answer(self, messages: bytes, lag: int) -> None:
        self._leave()
        self._settle(messages, lag)

    def _settle(self, messages: bytes, lag: int) -> None:
        body = b'{"messages":[%b],"lag":%d' % (messages, lag)
        if self._acked is None:
            self._waiter.settle(body + b"}")
        else:
            self._acked.add_done_callback(lambda acked: self._answer_both(body, acked))

    def _answer_both(self, body: bytes, acked: Reply[Outcome]) -> None:
        error = acked.exception()
        if error is not None:
            self._group.take_back(self._given)
            self._waiter.settle(error)
            return
        outcome = acked.result()
        tail = b',"acked":%d,"stale":%b}' % (len(outcome.done), stale_json(outcome))
        self._waiter.settle(body + tail)

    def _leave(self) -> None:
        self._over = True
        self._group.leave(self)
        if self._timer is not None:
            self._timer.cancel()


class Push:
    """A member that receives messages by push, over an event stream.

    While it does not read what it was sent, it gets no more.
    """

    most_bytes = PUSH_BYTES_MAX

    def __init__(self, group: Group, consumer: str, most: int) -> None:
        self.consumer = consumer
        self.sink: Sink | None = None
        self.gone = False
        self._group = group
        self._most = most
        self._pause: asyncio.Task[None] | None = None

    @property
    def demand(self) -> int:
        if self._pause is not None or self.gone:
            return 0
        return max(0, self._most - self._group.state.held.get(self.consumer, 0))

    def start(self, sink: Sink) -> None:
        self.sink = sink
        self._group.connect(self)

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        assert self.sink is not None
        events = map(sse.message_event, messages_json(self._group, deliveries))
        sent = self.sink.send(Payload(b"".join(events)))
        if sent and self.sink.paused:
            self._pause = asyncio.get_running_loop().create_task(self._wait(self.sink))

    async def _wait(self, sink: Sink) -> None:
        """Wait until the reader has received most of what it was sent."""
        await sink.drained()
        self._pause = None
        self._group.kick()

    def fail(self, error: StreamError) -> None:
        self.end()

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()

    def stopped(self) -> None:
        """The connection is closed."""
        if self.gone or self.sink is None:
            # Already over, or refused before it began: it holds nothing.
            return
        self.gone = True
        ending = Ending.MEMBER
        if self.sink.ended_here:
            ending = Ending.CUT_OFF if self.sink.cut_off else Ending.SERVER
        self._group.disconnect(self, ending)
