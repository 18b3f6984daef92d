"""Rows of the wire contract: a stream in some state, a request, and what has to come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh, producer
from tests.http.wire import Reply

State = Callable[[Client, str], None]


# ── States that a request can meet ───────────────────────────────────────────────────────────


def nothing(client: Client, path: str) -> None:
    """No stream at all."""


def empty(client: Client, path: str) -> None:
    client.create(TEXT, path=path)


def text(client: Client, path: str) -> None:
    client.create(TEXT, b"one", b"two", path=path)


def binary(client: Client, path: str) -> None:
    client.create({"Content-Type": "application/octet-stream"}, b"\x00\xff", path=path)


def json_stream(client: Client, path: str) -> None:
    client.create(JSON, b'{"n":1}', path=path)


def with_ttl(client: Client, path: str) -> None:
    client.create(TEXT | {"Stream-TTL": "3600"}, path=path)


def with_expiry(client: Client, path: str) -> None:
    client.create(TEXT | {"Stream-Expires-At": "2100-01-01T00:00:00Z"}, path=path)


def closed(client: Client, path: str) -> None:
    client.create(TEXT, b"one", path=path)
    client.close(path)


def closed_json(client: Client, path: str) -> None:
    client.create(JSON, path=path)
    client.close(path)


def with_producer(client: Client, path: str) -> None:
    """Producer p has sent 0, 1 and 2 of epoch 3."""
    client.create(JSON, path=path)
    for seq in range(3):
        body = f'"{seq}"'.encode()
        assert client.post(path, body, JSON | producer(3, seq)).status == 200


def with_producer_and_seq(client: Client, path: str) -> None:
    """Producer p has sent 0 and 1, with Stream-Seq a and b."""
    client.create(JSON, path=path)
    for seq, stream_seq in enumerate("ab"):
        headers = JSON | producer(0, seq) | {"Stream-Seq": stream_seq}
        assert client.post(path, b"1", headers).status == 200


def closed_by_producer(client: Client, path: str) -> None:
    """As before, and then it has closed the stream with 3."""
    with_producer(client, path)
    reply = client.post(path, b'"3"', JSON | CLOSE | producer(3, 3))
    assert reply.status == 200


def with_seq(client: Client, path: str) -> None:
    """The last Stream-Seq was m."""
    client.create(TEXT, path=path)
    assert client.post(path, b"x", TEXT | {"Stream-Seq": "m"}).status == 204


def deleted(client: Client, path: str) -> None:
    text(client, path)
    assert client.delete(path).status == 204


def soft_deleted(client: Client, path: str) -> None:
    """Deleted, but a fork still needs it."""
    text(client, path)
    fork = client.put(fresh("fork"), {"Stream-Forked-From": f"/v1/stream/{path}"})
    assert fork.status == 201
    assert client.delete(path).status == 204


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """One row. `has` are headers with their values, None for any; `lacks` may not be there."""

    name: str
    given: State
    method: str
    status: int
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    query: str = ""
    has: Mapping[str, str | None] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    answer: bytes | None = None
    changes: bool = True
    """Whether the request may change the stream; a refused one may not in any case."""

    def run(self, client: Client) -> Reply:
        path = fresh("case")
        self.given(client, path)
        before = _snapshot(client, path)
        query = f"?{self.query}" if self.query else ""
        reply = client.send(self.method, f"/v1/stream/{path}{query}", self.headers, self.body)
        assert (reply.status, self._code_of(reply)) == (self.status, self.code)
        for name, value in self.has.items():
            assert reply.headers[name] == (reply.headers[name] if value is None else value), name
        for name in self.lacks:
            assert name not in reply.headers
        if self.answer is not None:
            assert reply.body == self.answer
        if reply.status >= 400 or not self.changes:
            assert _snapshot(client, path) == before
        return reply

    def _code_of(self, reply: Reply) -> str | None:
        return error_code(reply) if reply.status >= 400 and self.method != "HEAD" else None


def _snapshot(client: Client, path: str) -> tuple[int, bytes, str | None, str | None]:
    reply = client.get(path)
    headers = reply.headers
    return reply.status, reply.body, headers.get("Stream-Next-Offset"), headers.get("Stream-Closed")


def rows(cases: Iterable[Case]) -> list[Any]:
    """Cases as parameters, named; a name that is used twice is a mistake."""
    cases = list(cases)
    assert len({case.name for case in cases}) == len(cases)
    return [pytest.param(case, id=case.name) for case in cases]
