"""Keys at an address: asked for when needed, not too often, and kept when nobody answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from headwater.core.errors import Unauthorized
from headwater.http.access import key_sets
from headwater.http.access.gate import Gate
from headwater.http.access.identity import Identity
from headwater.http.access.key_sets import KeysAtUrl, check_url
from headwater.http.access.keyring import Keyring
from headwater.http.access.tokens import TokenPolicy, Tokens
from headwater.http.access.verification import InvalidKeySet
from headwater.http.messages import Request
from headwater.http.routes.matching import locate
from headwater.service.clock import wall_clock_ms
from tests.access.guests import AUDIENCE
from tests.access.issuers import Issuer, key_set

OLD, NEW = Issuer.edwards("old"), Issuer.edwards("new")


class Publisher:
    """Answers every request with what it is told to."""

    def __init__(self) -> None:
        self.body = key_set(OLD)
        self.status = "200 OK"
        self.asked = 0
        self.silent = False
        self.url = ""
        self._held: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        self._held.append(writer)
        if self.silent:
            return
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        writer.write(head.encode() + self.body)
        writer.close()

    def end(self) -> None:
        for writer in self._held:
            writer.close()


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    publisher = Publisher()
    server = await asyncio.start_server(publisher, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    publisher.url = f"http://127.0.0.1:{port}/jwks.json"
    yield publisher
    publisher.end()
    server.close()


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(key_sets, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def ids(source: KeysAtUrl) -> list[str | None]:
    return [key.id for key in source.keys]


async def test_keys_are_fetched_once_for_many(publisher: Publisher, clock: Clock) -> None:
    source = KeysAtUrl(publisher.url)
    assert all(await asyncio.gather(*[source.look_again() for _ in range(50)]))
    assert publisher.asked == 1
    assert ids(source) == ["old"]


async def test_unknown_keys_make_it_ask_again_but_not_all_the_time(
    publisher: Publisher, clock: Clock
) -> None:
    source = KeysAtUrl(publisher.url)
    await source.look_again()
    publisher.body = key_set(NEW)
    for _ in range(100):
        assert not await source.look_again()
    assert publisher.asked == 1
    clock.now += key_sets.RETRY_S
    assert await source.look_again()
    assert (publisher.asked, ids(source)) == (2, ["new"])


@pytest.mark.parametrize("answer", ["nonsense", "error", "too large", "refused"])
async def test_the_last_good_keys_stay(publisher: Publisher, clock: Clock, answer: str) -> None:
    source = KeysAtUrl(publisher.url)
    await source.look_again()
    match answer:
        case "nonsense":
            publisher.body = b"<html>"
        case "error":
            publisher.status = "500 Oops"
        case "too large":
            publisher.body = b" " * (key_sets.SET_BYTES_MAX + 1) + key_set(NEW)
        case "refused":
            source._url = "http://127.0.0.1:1/jwks.json"
    clock.now += key_sets.REFRESH_S
    await source.look_again()
    assert ids(source) == ["old"]
    assert source.failures == 1
    assert not source.keys[0].credential.ended


async def test_one_who_does_not_answer_is_not_waited_for(
    publisher: Publisher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sets, "_FETCH_TIMEOUT_S", 0.05)
    publisher.silent = True
    source = KeysAtUrl(publisher.url)
    assert await source.look_again()
    assert source.failures == 1


async def test_it_is_refreshed_now_and_then(publisher: Publisher, clock: Clock) -> None:
    source = KeysAtUrl(publisher.url)
    source.refresh_if_due()
    await source.look_again()
    source.refresh_if_due()
    assert publisher.asked == 1
    publisher.body = key_set(NEW)
    old = source.keys[0]
    clock.now += key_sets.REFRESH_S
    source.refresh_if_due()
    await source.look_again()
    assert (publisher.asked, ids(source)) == (2, ["new"])
    assert old.credential.ended


async def test_it_can_be_stopped_while_it_asks(publisher: Publisher, clock: Clock) -> None:
    publisher.silent = True
    source = KeysAtUrl(publisher.url)
    source.refresh_if_due()
    await source.stop()
    await source.stop()


@pytest.mark.parametrize(
    "url",
    ["http://example.com/jwks", "ftp://127.0.0.1/", "file:///etc", "https//x", "http://[", ""],
)
def test_addresses_that_anyone_could_answer_for(url: str) -> None:
    with pytest.raises(InvalidKeySet):
        check_url(url)


# ── At the gate ──────────────────────────────────────────────────────────────────────────────


def request(token: str) -> Request:
    headers = {b"authorization": f"Bearer {token}".encode()}
    return Request("GET", b"/v1/streams", b"", headers)


async def test_a_token_by_a_new_key_waits_for_it(publisher: Publisher, clock: Clock) -> None:
    source = KeysAtUrl(publisher.url)
    identity = Identity(Keyring(), Tokens([source], TokenPolicy(AUDIENCE)), b"s" * 32)
    gate = Gate(identity, None, wall_clock_ms)
    place = locate(b"/v1/streams")

    first = request(OLD.sign())
    waiting = gate.admit(first, place)
    assert waiting is not None
    await waiting
    assert first.caller is not None
    assert first.caller.is_valid(int(time.time() * 1000))
    assert gate.admit(request(OLD.sign()), place) is None

    forged = gate.admit(request(NEW.sign()), place)
    assert forged is not None
    with pytest.raises(Unauthorized):
        await forged
    assert (publisher.asked, gate.unauthorized) == (1, 1)

    publisher.body = key_set(OLD, NEW)
    clock.now += key_sets.RETRY_S
    later = gate.admit(request(NEW.sign()), place)
    assert later is not None
    await later
