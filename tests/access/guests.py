"""A server with access control, and its guests: whoever has a key or a token."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt

from headwater.core.access.grants import GrantsText
from headwater.core.access.keys import KeyBook, KeyRecord, digest_of, format_key
from headwater.store.key_file import change_keys
from tests.http.client import check_every_response, error_code, eventually
from tests.http.wire import Reply, Wire, request_bytes
from tests.support.server import ServerProcess

_numbers = itertools.count(1)
AUDIENCE: Final = "headwater-tests"
SECRETS: Final[set[str]] = set()
"""Everything that was handed out and must not be seen anywhere."""


def secret(value: str) -> str:
    SECRETS.add(value)
    return value


@dataclass
class House:
    server: ServerProcess
    keys_file: Path
    jwt_secret: bytes
    _names: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextmanager
    def open(cls, directory: Path, engine: str, *arguments: str) -> Iterator[House]:
        keys_file = directory / "keys.json"
        secret_file = directory / "jwt.secret"
        jwt_secret = secret(f"secret-for-tokens-{next(_numbers)}-{'x' * 32}").encode()
        secret_file.write_bytes(jwt_secret + b"\n")
        storage = ["--memory"] if engine == "memory" else ["--data", str(directory / "data")]
        with ServerProcess(
            *storage,
            *("--access", "on", "--keys-file", str(keys_file)),
            *("--jwt-secret-file", str(secret_file), "--jwt-audience", AUDIENCE),
            *("--jwt-leeway-ms", "0", "--long-poll-timeout-ms", "30000"),
            *arguments,
        ) as server:
            yield cls(server, keys_file, jwt_secret)

    def fresh(self, prefix: str = "s") -> str:
        return f"{prefix}-{next(self._names)}"

    # ── Guests ───────────────────────────────────────────────────────────────────────────────

    def token(self, **claims: Any) -> str:
        body = {"exp": int(time.time()) + 600, "aud": AUDIENCE, "sub": "guest"} | claims
        body = {name: value for name, value in body.items() if value is not None}
        return secret(jwt.encode(body, self.jwt_secret, algorithm="HS256"))

    def guest(self, **grants: list[str]) -> Guest:
        """Someone with a token."""
        return Guest(self.server.port, self.token(headwater=grants))

    @property
    def owner(self) -> Guest:
        return self.guest(admin=["**"])

    @property
    def stranger(self) -> Guest:
        return Guest(self.server.port, None)

    def new_key(self, expires_at_ms: int | None = None, **grants: list[str]) -> tuple[str, str]:
        """A key in the file, whether or not the server has noticed: its id and itself."""
        number = next(_numbers)
        key_id, key = format_key(number.to_bytes(6), number.to_bytes(32))
        secret(key)
        record = KeyRecord(
            key_id, digest_of(key), 0, GrantsText(**grants), expires_at_ms=expires_at_ms
        )
        change_keys(self.keys_file, lambda book: KeyBook([*book.keys, record]))
        self.hurry()
        return key_id, key

    def key_guest(self, **grants: list[str]) -> tuple[str, Guest]:
        """Someone with a key that the server knows."""
        key_id, key = self.new_key(None, **grants)
        guest = Guest(self.server.port, key)
        eventually(lambda: guest.send("GET", "/v1/streams").status == 200)
        return key_id, guest

    def revoke(self, key_id: str) -> None:
        change_keys(self.keys_file, lambda book: KeyBook([k for k in book.keys if k.id != key_id]))
        self.hurry()

    def hurry(self) -> None:
        """Have the files read now. They would be read soon, but tests should not wait for that."""
        os.kill(self.server.pid, signal.SIGHUP)


@dataclass
class Guest:
    port: int
    token: str | None = field(repr=False)

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return own | dict(more or {})

    def send(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with Wire(self.port) as wire:
            reply = wire.request(method, target, self.headers(headers), body)
        check_every_response(reply)
        return reply

    def json(self, method: str, target: str, body: Any) -> Reply:
        return self.send(
            method, target, {"Content-Type": "application/json"}, json.dumps(body).encode()
        )

    def put(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        chosen = {"Content-Type": "application/json"} | dict(headers or {})
        return self.send("PUT", f"/v1/stream/{path}", chosen)

    def post(self, path: str, body: bytes = b'{"n":1}') -> Reply:
        return self.send("POST", f"/v1/stream/{path}", {"Content-Type": "application/json"}, body)

    def get(self, path: str, query: str = "") -> Reply:
        return self.send("GET", f"/v1/stream/{path}{'?' if query else ''}{query}")

    def names(self, query: str = "") -> list[str]:
        reply = self.send("GET", f"/v1/streams?{query}")
        assert reply.status == 200, reply
        return [stream["name"] for stream in json.loads(reply.body)["streams"]]

    @contextmanager
    def open(self, target: str) -> Iterator[Wire]:
        """A request whose answer is still to come."""
        with Wire(self.port) as wire:
            wire.send(request_bytes("GET", target, self.headers()))
            yield wire


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, error_code(reply)
