"""Headwater, over HTTP."""

import json
from collections.abc import Callable, Sequence

from benchmarks.load.brokers.base import ACK_SECONDS, HELD_MAX, WAIT_SECONDS, Broker, Done, Fetched
from benchmarks.load.http import request, stream_path

_GROUP = json.dumps({"max_in_flight": HELD_MAX, "ack_timeout_ms": ACK_SECONDS * 1000}).encode()
_LENGTH = b"\r\nContent-Length: "
_RECEIPT = b'"receipt":"'


class HeadwaterBroker(Broker):
    def create_stream(self, stream: str, done: Done) -> None:
        self._ask(request("PUT", stream_path(stream)), lambda _: done())

    def create_group(self, stream: str, group: str, done: Done) -> None:
        self._ask(request("PUT", _group_path(stream, group), _GROUP), lambda _: done())

    def append(self, stream: str, messages: Sequence[bytes], done: Done) -> None:
        body = b"[" + b",".join(messages) + b"]"
        self._ask(request("POST", stream_path(stream), body), lambda _: done())

    def fetch(self, stream: str, group: str, consumer: str, most: int, done: Fetched) -> None:
        body = b'{"consumer":"%s","max":%d,"wait_ms":%d}' % (
            consumer.encode(), most, WAIT_SECONDS * 1000,
        )  # fmt: skip
        self._ask_messages(stream, group, body, done)

    def ack_and_fetch(
        self,
        stream: str,
        group: str,
        consumer: str,
        receipts: Sequence[bytes],
        most: int,
        done: Fetched,
    ) -> None:
        body = b'{"consumer":"%s","max":%d,"wait_ms":%d,"ack":["%s"]}' % (
            consumer.encode(), most, WAIT_SECONDS * 1000, b'","'.join(receipts),
        )  # fmt: skip

        def fetched(found: list[bytes], data: bytes) -> None:
            if data.endswith(b'"stale":[]}'):
                done(found, data)
            else:
                self._failed(f"receipts were stale: {data[-80:]!r}")

        self._ask_messages(stream, group, body, fetched)

    def _ask_messages(self, stream: str, group: str, body: bytes, done: Fetched) -> None:
        def answered(data: bytes) -> None:
            parts = data.split(_RECEIPT)
            done([part[: part.index(b'"')] for part in parts[1:]], data)

        self._ask(request("POST", _group_path(stream, group) + "/fetch", body), answered)

    def ack(self, stream: str, group: str, receipts: Sequence[bytes], done: Done) -> None:
        body = b'{"receipts":["' + b'","'.join(receipts) + b'"]}'

        def answered(data: bytes) -> None:
            if b'"stale":[]' in data:
                done()
            else:
                self._failed(f"receipts were stale: {data[-80:]!r}")

        self._ask(request("POST", _group_path(stream, group) + "/ack", body), answered)

    def transact(
        self, stream: str, group: str, receipt: bytes, target: str, message: bytes, done: Done
    ) -> None:
        body = (
            b'{"ack":{"stream":"%s","group":"%s","receipts":["%s"]},'
            b'"publish":[{"stream":"%s","value":%s}]}'
        ) % (stream.encode(), group.encode(), receipt, target.encode(), message)
        self._ask(request("POST", "/v1/transaction", body), lambda _: done())

    def _ask(self, data: bytes, answered: Callable[[bytes], None]) -> None:
        self._answered = answered
        self._transport.write(data)

    def _advance(self) -> None:
        data = self._buffer
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        at = data.find(_LENGTH, 0, end)
        if at >= 0:
            at += len(_LENGTH)
            if len(data) < end + 4 + int(data[at : data.index(b"\r", at)]):
                return
        self._buffer = b""
        if data[9:10] == b"2":
            self._answered(data)
        else:
            self._failed(f"a request was answered {data[9:12].decode()}: {data[end + 4 :][:200]!r}")


def _group_path(stream: str, group: str) -> str:
    return f"{stream_path(stream)}/_groups/{group}"
