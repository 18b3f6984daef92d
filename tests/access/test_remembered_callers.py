"""A request like one that was admitted is admitted without the gate, while its caller is valid.

A head is known from its second request on, and the third takes the shortcut, if there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.core.access.grants import GrantsText
from headwater.core.access.keys import KeyBook
from headwater.store.key_file import change_keys, load_keys
from tests.access.guests import Guest, House, refusal
from tests.http.client import eventually
from tests.http.wire import Reply, Wire, request_bytes

USES = 4
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def stream(house: House) -> str:
    path = house.fresh("remembered")
    assert house.owner.put(path).status == 201
    return path


@pytest.fixture
def wire(house: House) -> Iterator[Wire]:
    with Wire(house.server.port) as wire:
        yield wire


def sender(guest: Guest, wire: Wire, target: str, body: bytes = b"1") -> Callable[[], Reply]:
    """Sends the same request every time, in one piece."""
    whole = request_bytes("POST", target, guest.headers(JSON), body)

    def send() -> Reply:
        wire.send(whole)
        return wire.reply()

    return send


def messages(house: House, path: str) -> int:
    return len(json.loads(house.owner.get(path).body))


def refused_with(status: int, send: Callable[[], Reply]) -> int:
    """Send until it is refused; returns how often it was not."""
    answers: list[int] = []

    def is_refused() -> bool:
        answers.append(send().status)
        return answers[-1] == status

    eventually(is_refused)
    assert set(answers[:-1]) <= {204}
    return len(answers) - 1


def test_a_revoked_key(house: House, stream: str, wire: Wire) -> None:
    key_id, guest = house.key_guest(write=[stream])
    send = sender(guest, wire, f"/v1/stream/{stream}")
    assert [send().status for _ in range(USES)] == [204] * USES
    house.revoke(key_id)
    stored = USES + refused_with(401, send)
    assert [send().status for _ in range(USES)] == [401] * USES
    assert messages(house, stream) == stored


def test_a_key_with_other_grants(house: House, stream: str, wire: Wire) -> None:
    key_id, guest = house.key_guest(write=[stream])
    send = sender(guest, wire, f"/v1/stream/{stream}")
    assert [send().status for _ in range(USES)] == [204] * USES
    for granted, status in (["elsewhere"], 403), ([stream], 204):
        regrant(house, key_id, granted)
        eventually(lambda status=status: send().status == status)  # type: ignore[misc]
        assert [send().status for _ in range(USES)] == [status] * USES


def regrant(house: House, key_id: str, granted: list[str]) -> None:
    book = load_keys(house.keys_file)
    assert book is not None
    changed = [
        msgspec.structs.replace(key, grants=GrantsText(write=granted)) if key.id == key_id else key
        for key in book.keys
    ]
    change_keys(house.keys_file, lambda _: KeyBook(changed))
    house.hurry()


@pytest.mark.parametrize("kind", ["key", "token"])
def test_an_end_in_time(house: House, stream: str, wire: Wire, kind: str) -> None:
    until_s = int(time.time()) + 3
    if kind == "key":
        _, key = house.new_key(until_s * 1000, write=[stream])
        guest = Guest(house.server.port, key)
        eventually(lambda: guest.post(stream).status == 204)
    else:
        guest = Guest(house.server.port, house.token(exp=until_s, headwater={"write": [stream]}))
    send = sender(guest, wire, f"/v1/stream/{stream}")
    refused_with(401, send)
    assert time.time() >= until_s
    assert refusal(guest.post(stream)) == (401, "unauthorized")


def test_somebody_else_with_the_same_request(house: House, stream: str, wire: Wire) -> None:
    send = sender(house.guest(write=[stream]), wire, f"/v1/stream/{stream}")
    others = [
        (sender(house.guest(read=[stream]), wire, f"/v1/stream/{stream}"), 403),
        (sender(house.stranger, wire, f"/v1/stream/{stream}"), 401),
        (sender(Guest(house.server.port, "no token"), wire, f"/v1/stream/{stream}"), 401),
    ]
    for _ in range(USES):
        assert send().status == 204
        for other, status in others:
            assert other().status == status
    assert messages(house, stream) == USES


def test_what_a_group_is_asked(house: House, stream: str, wire: Wire) -> None:
    group = f"/v1/stream/{stream}/_groups/g"
    assert house.owner.json("PUT", group, {}).status == 201
    key_id, guest = house.key_guest(read=[stream], write=[f"{stream}/_groups/g"])
    fetch = sender(guest, wire, f"{group}/fetch", b'{"consumer":"c","max":1}')
    ack = sender(guest, wire, f"{group}/ack", b'{"receipts":["no receipt"]}')
    for send in fetch, ack:
        assert [send().status for _ in range(USES)] == [200] * USES
    house.revoke(key_id)
    eventually(lambda: fetch().status == 401)
    assert ack().status == 401


def test_rates_are_counted_for_every_request(tmp_path: Path) -> None:
    with House.open(tmp_path, "memory", "--requests-per-s-max", "3") as house:
        assert house.owner.put("s").status == 201
        with Wire(house.server.port) as wire:
            send = sender(house.guest(write=["s"]), wire, "/v1/stream/s")
            refused_with(429, send)
