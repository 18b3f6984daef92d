"""API keys over their whole life, and signed addresses."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from headwater.core.access.grants import GrantsText
from headwater.core.access.keys import KeyBook
from headwater.store.key_file import KeyFileError, change_keys, load_keys, load_secret
from tests.access.guests import Guest, House, refusal, secret
from tests.http.client import eventually
from tests.http.wire import Reply, Wire, request_bytes
from tests.support.server import ServerProcess

LATER_MS = 4_000_000_000_000


def status_of(guest: Guest) -> int:
    return guest.send("GET", "/v1/streams").status


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_noticed_and_forgotten_while_the_server_runs(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    key_id, guest = house.key_guest(read=[path])
    assert guest.get(path).status == 200
    assert guest.post(path).status == 403
    house.revoke(key_id)
    eventually(lambda: status_of(guest) == 401)


def test_the_file_is_looked_at_without_being_told(own_house: House) -> None:
    own_house.hurry = lambda: None  # type: ignore[method-assign]
    key_id, guest = own_house.key_guest(read=["**"])
    own_house.revoke(key_id)
    eventually(lambda: status_of(guest) == 401)


def test_a_key_ends_at_its_moment(house: House) -> None:
    _, ended = house.new_key(expires_at_ms=int(time.time() * 1000) - 1, read=["**"])
    _, lasting = house.new_key(expires_at_ms=LATER_MS, read=["**"])
    eventually(lambda: status_of(Guest(house.server.port, lasting)) == 200)
    reply = Guest(house.server.port, ended).send("GET", "/v1/streams")
    assert refusal(reply) == (401, "unauthorized")


def test_a_key_with_other_grants_is_another_key(house: House) -> None:
    """Readers with the old grants are disconnected when those change."""
    path = house.fresh()
    house.owner.put(path)
    key_id, guest = house.key_guest(read=[path])
    with guest.open(f"/v1/stream/{path}?offset=now&live=sse") as wire:
        assert wire.head().status == 200
        book = load_keys(house.keys_file)
        assert book is not None
        record = next(key for key in book.keys if key.id == key_id)
        others = [key for key in book.keys if key.id != key_id]
        changed = msgspec.structs.replace(record, grants=GrantsText(read=["elsewhere"]))
        change_keys(house.keys_file, lambda _: KeyBook([*others, changed]))
        house.hurry()
        wire.receive_all()
    eventually(lambda: guest.get(path).status == 403)


@pytest.mark.parametrize("change", ["one letter", "another secret", "another id", "cut", "longer"])
def test_keys_that_are_nearly_right(house: House, change: str) -> None:
    _, guest = house.key_guest(read=["**"])
    key = guest.token
    assert key is not None
    changed = {
        "one letter": key[:-1] + ("A" if key[-1] != "A" else "B"),
        "another secret": key[:16] + "x" * 43,
        "another id": "hw_ffffffffffff" + key[15:],
        "cut": key[:-1],
        "longer": key + "A",
    }[change]
    assert status_of(Guest(house.server.port, secret(changed))) == 401


def test_a_broken_file_changes_nothing(own_house: House) -> None:
    key_id, guest = own_house.key_guest(read=["**"])
    good = own_house.keys_file.read_bytes()
    own_house.keys_file.write_bytes(b"{broken")
    eventually(lambda: "not_reloaded" in own_house.server.stderr)
    assert status_of(guest) == 200
    own_house.keys_file.write_bytes(good)
    own_house.revoke(key_id)
    eventually(lambda: status_of(guest) == 401)


def test_a_file_that_is_gone_lets_nobody_in(own_house: House) -> None:
    _, guest = own_house.key_guest(read=["**"])
    own_house.keys_file.unlink()
    eventually(lambda: status_of(guest) == 401)


# ── The file ─────────────────────────────────────────────────────────────────────────────────


def test_the_file_is_for_its_owner_and_holds_no_key(house: House) -> None:
    _, key = house.new_key(read=["a"])
    assert stat.S_IMODE(house.keys_file.stat().st_mode) == 0o600
    assert key not in house.keys_file.read_text()
    assert key.rpartition("_")[2] not in house.keys_file.read_text()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"keys": [{}]}',
        '{"version": 3, "keys": []}',
        '{"keys": [{"id": "x", "digest": "y", "created_at_ms": 0, "grants": {}}]}',
        '{"keys": [{"id": "0123456789ab", "digest": "%s", "created_at_ms": 0, '
        '"grants": {"read": ["a*"]}}]}' % ("0" * 64),
    ],
)
def test_what_is_no_file_of_keys(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(KeyFileError):
        load_keys(tmp_path / "keys.json")


def test_a_failed_change_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    change_keys(path, lambda book: book)
    before = path.read_bytes()

    def fail(book: KeyBook) -> KeyBook:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        change_keys(path, fail)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == [".keys.json.lock", "keys.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator can give files away")
def test_files_belong_to_whom_the_directory_belongs(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    change_keys(tmp_path / "keys.json", lambda book: book)
    load_secret(tmp_path / "signing.secret")
    assert {file.stat().st_uid for file in tmp_path.iterdir()} == {12345}


def test_the_signing_secret_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "signing.secret"
    first = load_secret(path)
    assert load_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short")
    with pytest.raises(KeyFileError, match="too little"):
        load_secret(path)


# ── Signed addresses ─────────────────────────────────────────────────────────────────────────


def presign(guest: Guest, path: str, expires_s: int = 300) -> str:
    reply = guest.json("POST", "/v1/presign", {"stream": path, "expires_s": expires_s})
    assert reply.status == 200, reply
    url: str = json.loads(reply.body)["url"]
    secret(parse_qs(urlsplit(url).query)["signature"][0])
    return url


def with_fields(url: str, **fields: str) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query, True).items()}
    return f"{parts.path}?{urlencode(query | fields)}"


@pytest.mark.parametrize("name", ["plain", "a%25b", "with.dots/and~tilde", "x*y"])
def test_a_signed_address_reads_its_stream(house: House, name: str) -> None:
    path = house.fresh() + name
    owner = house.owner
    assert owner.put(path).status == 201
    owner.post(path, b"[1, 2]")
    real = json.loads(owner.get(f"{path}/_details").body)["name"]
    url = presign(owner, real)
    stranger = house.stranger
    assert stranger.send("GET", url).body == b"[1,2]"
    assert stranger.send("HEAD", url).status == 200
    assert stranger.send("GET", f"{url}&offset=now").body == b"[]"
    with stranger.open(f"{url}&offset=-1&live=sse") as wire:
        assert wire.head().status == 200
        assert b"[1,2]" in wire.take_through(b"\n\n") + wire.take_through(b"\n\n")


def test_a_signed_address_does_nothing_else(house: House) -> None:
    path = house.fresh()
    owner = house.owner
    owner.put(path)
    owner.json("PUT", f"/v1/stream/{path}/_groups/g", {})
    url = presign(owner, path)
    query = urlsplit(url).query
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        assert house.stranger.send(method, url).status == 401
    for target in (
        f"/v1/stream/{path}/_details",
        f"/v1/stream/{path}/_groups",
        f"/v1/stream/{path}/_groups/g",
        f"/v1/stream/{path}x",
        "/v1/streams",
        "/metrics",
    ):
        assert house.stranger.send("GET", f"{target}?{query}").status == 401, target
    reply = house.stranger.send("POST", f"/v1/presign?{query}", {}, b"{}")
    assert reply.status == 401


def test_tampering(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    house.owner.put(f"{path}2")
    url = presign(house.owner, path)
    far = str(int(time.time()) + 10**6)
    bad: list[str] = [
        with_fields(url, expires=far),
        with_fields(url, expires=f" {parse_qs(urlsplit(url).query)['expires'][0]}"),
        with_fields(url, key="0123456789ab"),
        with_fields(url, signature="A" * 43),
        with_fields(url, signature=""),
        with_fields(url, signature="ä"),
        url.replace(path, f"{path}2"),
        f"{url}&signature={'A' * 43}",
        f"{url}&expires={far}",
        f"{url}&key=",
        url.partition("&signature")[0],
        url[:-1],
    ]
    for target in bad:
        assert refused(house.stranger.send("GET", target)), target
    assert house.stranger.send("GET", url).status == 200


def refused(reply: Reply) -> bool:
    return refusal(reply) == (401, "unauthorized")


def test_an_address_ends_with_the_key_that_it_was_made_with(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    key_id, guest = house.key_guest(read=[path])
    url = presign(guest, path)
    assert house.stranger.send("GET", url).status == 200
    with house.stranger.open(f"{url}&offset=now&live=sse") as wire:
        assert wire.head().status == 200
        house.revoke(key_id)
        wire.receive_all()
    assert refused(house.stranger.send("GET", url))


def test_an_address_cannot_outlive_its_token(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    token = house.token(exp=int(time.time()) + 100, headwater={"read": [path]})
    body = {"stream": path, "expires_s": 200}
    reply = Guest(house.server.port, token).json("POST", "/v1/presign", body)
    assert refusal(reply) == (400, "invalid_body")
    assert "outlive" in json.loads(reply.body)["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [{}, {"stream": "a", "expires_s": 0}, {"stream": "a", "expires_s": 10**9}, {"stream": "a//b"}],
)
def test_what_cannot_be_signed(house: House, body: dict[str, object]) -> None:
    assert house.owner.json("POST", "/v1/presign", body).status == 400


def test_an_address_ends_at_its_moment(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    statuses: list[int] = []
    for expires_s in (1, 5, 30):  # a busy machine may be too late for the first
        url = presign(house.owner, path, expires_s=expires_s)
        with house.stranger.open(f"{url}&offset=now&live=sse") as wire:
            statuses.append(wire.head().status)
            wire.receive_all()
        assert refused(house.stranger.send("GET", url))
        if statuses[-1] == 200:
            break
    assert statuses[-1] == 200


def test_without_access_control_there_is_nothing_to_sign(tmp_path: Path) -> None:
    with ServerProcess("--memory") as server:
        reply = Guest(server.port, None).json("POST", "/v1/presign", {"stream": "a"})
    assert refusal(reply) == (404, "not_found")


# ── Live reads end ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_live_reads_end_when_the_key_is_revoked(house: House, live: str) -> None:
    path = house.fresh()
    house.owner.put(path)
    key_id, guest = house.key_guest(read=[path])
    with guest.open(f"/v1/stream/{path}?offset=now&live={live}") as wire:
        if live == "sse":
            assert wire.head().status == 200
        else:
            eventually(lambda: b'"readers":1' in house.owner.get(f"{path}/_details").body)
        house.revoke(key_id)
        if live == "sse":
            assert wire.receive_all().endswith(b"0\r\n\r\n")
        else:
            assert refused(wire.reply())
            assert wire.is_at_end()
    eventually(lambda: b'"readers":0' in house.owner.get(f"{path}/_details").body)


def test_live_reads_end_when_the_token_expires(house: House) -> None:
    path = house.fresh()
    house.owner.put(path)
    token = house.token(exp=int(time.time()) + 2, headwater={"read": [path]})
    with Guest(house.server.port, token).open(f"/v1/stream/{path}?offset=now&live=sse") as wire:
        assert wire.head().status == 200
        assert wire.receive_all().endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("way", ["fetch", "push"])
def test_members_of_a_group_end_with_their_key(house: House, way: str) -> None:
    path = house.fresh()
    house.owner.put(path)
    house.owner.json("PUT", f"/v1/stream/{path}/_groups/g", {})
    key_id, guest = house.key_guest(admin=[path])
    group = f"/v1/stream/{path}/_groups/g"
    target = f"{group}?live=sse&consumer=c" if way == "push" else f"{group}/fetch"
    body = b'{"consumer": "c", "wait_ms": 60000}'
    with Wire(house.server.port) as wire:
        method, content = ("GET", b"") if way == "push" else ("POST", body)
        wire.send(request_bytes(method, target, guest.headers(), content))
        if way == "push":
            assert wire.head().status == 200
        house.revoke(key_id)
        if way == "push":
            wire.receive_all()
        else:
            assert refused(wire.reply())
            group_now = json.loads(house.owner.get(f"{path}/_groups/g").body)
            assert group_now["in_flight"] == 0


def test_a_write_that_is_under_way_ends_well(house: House) -> None:
    """Only those who wait for news are sent away; others may finish what they began."""
    path = house.fresh()
    house.owner.put(path)
    key_id, guest = house.key_guest(write=[path])
    assert guest.post(path).status == 204
    house.revoke(key_id)
    eventually(lambda: guest.post(path).status == 401)
    assert json.loads(house.owner.get(path).body)
