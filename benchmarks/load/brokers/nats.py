"""NATS JetStream, in the NATS protocol: pull consumers that acknowledge each message."""

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.load.brokers.base import ACK_SECONDS, HELD_MAX, WAIT_SECONDS, Broker, Done, Fetched

_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
_INBOX = b"_INBOX.%x."
_RECEIPT = b"$JS.ACK."
_NOBODY_LISTENS = b"NATS/1.0 503"
_NS = 1_000_000_000
_CONSUMERS_MAX = 10_000


class NatsBroker(Broker):
    """Each request has its own inbox, so a late answer is never taken for another.

    Messages come with the subject they were published to, and with their receipt as the inbox to
    reply to. They are never late: a fetch ends with the last of them, or with a status.
    """

    _made = 0

    def _greet(self) -> None:
        NatsBroker._made += 1
        self._inbox = _INBOX % NatsBroker._made
        self._asked = 0
        self._to = b""
        self._messages: list[bytes] = []
        self._payloads: list[bytes] = []
        self._transport.write(_CONNECT + b"SUB " + self._inbox + b"* 1\r\nPING\r\n")

    def create_stream(self, stream: str, done: Done) -> None:
        config = {
            "name": stream,
            "subjects": [stream],
            "storage": "file",
            # Newer versions allow 1,000 unless told otherwise.
            "max_consumers": _CONSUMERS_MAX,
        }
        self._call(f"STREAM.CREATE.{stream}", config, done)

    def create_group(self, stream: str, group: str, done: Done) -> None:
        config = {
            "durable_name": group,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "max_ack_pending": HELD_MAX,
            "ack_wait": ACK_SECONDS * _NS,
        }
        what = {"stream_name": stream, "config": config}
        self._call(f"CONSUMER.DURABLE.CREATE.{stream}.{group}", what, done)

    def append(self, stream: str, messages: Sequence[bytes], done: Done) -> None:
        inbox = self._new_inbox(len(messages), self._checked(f"PUB {stream}", done))
        subject = stream.encode()
        self._transport.write(b"".join([_publish(subject, inbox, m) for m in messages]))

    def fetch(self, stream: str, group: str, consumer: str, most: int, done: Fetched) -> None:
        inbox = self._new_inbox(most, done)
        body = b'{"batch":%d,"expires":%d}' % (most, WAIT_SECONDS * _NS)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{group}".encode()
        self._transport.write(_publish(subject, inbox, body))

    def ack(self, stream: str, group: str, receipts: Sequence[bytes], done: Done) -> None:
        # Acknowledgements are processed in order, so the answer to the last one covers all.
        inbox = self._new_inbox(1, lambda *_: done())
        *others, last = receipts
        silent = [_publish(receipt, b"", b"+ACK") for receipt in others]
        self._transport.write(b"".join([*silent, _publish(last, inbox, b"+ACK")]))

    def _call(self, name: str, what: dict[str, Any], done: Done) -> None:
        inbox = self._new_inbox(1, self._checked(name, done))
        body = json.dumps(what).encode()
        self._transport.write(_publish(f"$JS.API.{name}".encode(), inbox, body))

    def _checked(self, name: str, done: Done) -> Fetched:
        def answered(_: list[bytes], data: bytes) -> None:
            if b'"error"' in data:
                self._failed(f"{name} was refused: {data[:200]!r}")
            else:
                done()

        return answered

    def _new_inbox(self, answers: int, answered: Fetched) -> bytes:
        self._asked += 1
        self._to = self._inbox + b"%x" % self._asked
        self._missing = answers
        self._answered = answered
        self._messages, self._payloads = [], []
        return self._to

    def _advance(self) -> None:
        data, at = self._buffer, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split(b" ")
            kind = words[0]
            size = int(words[-1]) + 2 if kind in {b"MSG", b"HMSG"} else 0
            if len(data) < end + 2 + size:
                break
            if size:
                self._take(kind, words, data[end + 2 : end + size])
            elif kind == b"PING":
                self._transport.write(b"PONG\r\n")
            elif kind == b"PONG" and not self.ready.done():
                self.ready.set_result(None)
            elif kind == b"-ERR":
                self._failed(data[at:end].decode())
            at = end + 2 + size
        self._buffer = data[at:]
        if self._to and self._missing <= 0:
            self._to = b""
            self._answered(self._messages, b"".join(self._payloads))

    def _take(self, kind: bytes, words: list[bytes], payload: bytes) -> None:
        is_message = len(words) == 5 and words[3].startswith(_RECEIPT)
        if words[1] != self._to and not is_message:
            return
        if kind == b"HMSG":  # a status: there are no more messages for this request
            self._missing = 0
            if _NOBODY_LISTENS in payload:
                self._failed("nobody takes this request")
            return
        self._missing -= 1
        if is_message:
            self._messages.append(words[3])
        self._payloads.append(payload)


def _publish(subject: bytes, reply: bytes, payload: bytes) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
