"""Those to whom a group hands out messages: a fetch that waits, or an open event stream."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Final

import msgspec

from headwater.core.errors import StreamError
from headwater.core.groups.state import RECEIPT, Outstanding
from headwater.core.groups.transitions import Outcome
from headwater.core.unique_ids import pointer_steps, resolve
from headwater.http import sse
from headwater.http.answers import JSON_HEADERS
from headwater.http.messages import Answer, Payload, Response, Sink
from headwater.service.groups.group import Delivery, Group

_DELIVERY: Final = b'{"id":%b,"offset":"%b","deliveries":%d,"receipt":"' + RECEIPT + b'",%b}'


def messages_json(group: Group, deliveries: list[Delivery]) -> list[bytes]:
    """Delivered messages. The value goes in as it was sent, byte for byte.

    They come in hundreds and most of their fields need no escaping, so they are put together here.
    """
    config, group_id = group.entry.require_view().config, group.state.record.id
    is_json, rule = config.is_json, config.unique_ids
    pointer = rule.pointer if rule is not None else None
    rendered: list[bytes] = []
    known_start, offset = -1, b""
    for message, data in deliveries:
        number, start, _ = message.ref
        if start != known_start:
            known_start, offset = start, str(config.lineage.offset_at(start)).encode()
        message_id = b'"%d"' % number if pointer is None else _own_id(data, pointer)
        content = b'"value":%b' % data if is_json else b'"data":"%b"' % b64encode(data)
        rendered.append(
            _DELIVERY
            % (message_id, offset, message.deliveries, group_id, number, message.token, content)
        )
    return rendered


def _own_id(data: bytes, pointer: str) -> bytes:
    """The id that a message has in it, as JSON."""
    own = str(resolve(msgspec.json.decode(data), pointer_steps(pointer)))
    return msgspec.json.encode(own)


class Fetch:
    """A fetch that waits for messages.

    What came with it to be acknowledged is on its way to the disk already, whatever becomes of the
    fetch. The answer tells of both, so it is there when both are.
    """

    def __init__(
        self,
        group: Group,
        consumer: str,
        most: int,
        wait_ms: int,
        acked: asyncio.Future[Outcome] | None,
    ) -> None:
        self.consumer = consumer
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._group = group
        self._acked = acked
        self._over = False
        """Whether it is known what the answer will be."""
        self._most = most
        self._given: list[Outstanding] = []
        self._wait_ms = wait_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._group.enlist(self)
        # Whoever can be served at once needs no timer.
        self._group.after_pump(self._begin_to_wait)

    def _begin_to_wait(self) -> None:
        if self._wait_ms == 0:
            self.give_up()
        elif not self._over:
            delay_s = self._wait_ms / 1000
            self._timer = self.future.get_loop().call_later(delay_s, self.give_up)

    @property
    def demand(self) -> int:
        return 0 if self._over else self._most

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        given = [message for message, _ in deliveries]
        if self._over:
            # The member hung up in this very moment; these go back as if nothing had happened.
            self._group.take_back(given)
            return
        self._given = given
        self._answer(b",".join(messages_json(self._group, deliveries)), lag)

    def fail(self, error: StreamError) -> None:
        if not self._over:
            self._leave()
            if self._acked is not None:
                # Nobody will be told. It is committed all the same if it can be.
                self._acked.cancel()
            self.future.set_exception(error)

    def hang_up(self) -> None:
        """The member is gone, and has seen nothing of what it may have been given already."""
        if self._given:
            self._group.take_back(self._given)
        self.give_up()

    def give_up(self) -> None:
        """Time is up: an empty answer."""
        if not self._over:
            self._answer(b"", self._group.lag)

    def _answer(self, messages: bytes, lag: int) -> None:
        self._leave()
        body = b'{"messages":[%b],"lag":%d' % (messages, lag)
        if self._acked is None:
            self.future.set_result(Response(200, JSON_HEADERS, body + b"}"))
        else:
            self._acked.add_done_callback(lambda acked: self._answer_both(body, acked))

    def _answer_both(self, body: bytes, acked: asyncio.Future[Outcome]) -> None:
        error = acked.exception()
        if error is not None:
            self.future.set_exception(error)
            return
        done, stale, _ = acked.result()
        self._group.figures.settled["acked"] += len(done)
        tail = b',"acked":%d,"stale":%b}' % (len(done), msgspec.json.encode(stale))
        self.future.set_result(Response(200, JSON_HEADERS, body + tail))

    def _leave(self) -> None:
        self._over = True
        self._group.leave(self)
        if self._timer is not None:
            self._timer.cancel()


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
        for message in messages_json(self._group, deliveries):
            if not self.sink.send(Payload(sse.message_event(message))):
                return

    def fail(self, error: StreamError) -> None:
        self.end()

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()

    def stopped(self) -> None:
        """The connection is closed: what this member held goes to others at once."""
        if self.gone or self.sink is None:
            # Over already, or turned away before it began: it holds nothing.
            return
        self.gone = True
        self._group.leave(self)
        if not self._group.gone:
            self._group.release(self.consumer)
