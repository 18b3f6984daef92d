"""Durable responses on a server that knows its callers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.access.guests import House
from tests.responses.reader import Proxy, bare, code
from tests.support.upstream import Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.on("/a", lambda peer: peer.answer(b"tokens", "Content-Type: text/plain"))
        yield upstream


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory: Path = tmp_path_factory.mktemp("place")
    with House.open(directory, "memory", "--proxy-allow", "http://127.0.0.1:*") as house:
        yield house
        assert "Traceback" not in house.server.stderr


@pytest.fixture
def http(place: House) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=place.server.url, timeout=60) as http:
        yield http


def key(place: House, **grants: list[str]) -> str:
    return place.token(headwater=grants)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_making_one_needs_a_key_that_may_write_there(
    place: House, http: httpx.Client, upstream: Upstream
) -> None:
    url = f"{upstream.url}/a"
    assert code(Proxy(http).make(url)) == (401, "MISSING_SECRET")
    assert code(Proxy(http, "nonsense").make(url)) == (401, "INVALID_SECRET")
    expired = place.token(exp=1, headwater={"write": ["**"]})
    assert code(Proxy(http, expired).make(url)) == (401, "INVALID_SECRET")
    for grants in ({"read": ["**"]}, {"write": ["other/*"]}, {"write": ["responses"]}, {}):
        assert Proxy(http, key(place, **grants)).make(url).status_code == 403
    assert upstream.seen == []
    assert Proxy(http, key(place, write=["responses/*"])).make(url).status_code == 201


def test_whoever_has_the_address_reads_and_aborts_and_does_nothing_else(
    place: House, http: httpx.Client, upstream: Upstream
) -> None:
    location = Proxy(http, key(place, write=["responses/*"])).open(f"{upstream.url}/a")
    assert Proxy(http).follow(location).body == b"tokens"
    assert http.get(location).headers["Cache-Control"].startswith("private")
    assert http.patch(f"{location}&action=abort").status_code == 204
    assert http.head(location).status_code == 401
    assert code(http.delete(location)) == (401, "MISSING_SECRET")
    assert code(http.get(bare(location))) == (401, "MISSING_SIGNATURE")
    # A signature of this kind opens no stream, and one for a stream opens no response.
    name = bare(location).rpartition("/")[2]
    query = location.partition("?")[2]
    assert http.get(f"/v1/stream/responses/{name}?{query}").status_code == 401


def test_a_key_reads_and_deletes_as_far_as_it_may(
    place: House, http: httpx.Client, upstream: Upstream
) -> None:
    location = Proxy(http, key(place, write=["responses/*"])).open(f"{upstream.url}/a")
    Proxy(http).follow(location)
    address = bare(location)
    reader, writer = key(place, read=["responses/*"]), key(place, write=["responses/*"])
    other, cleaner = key(place, read=["other/**"]), key(place, delete=["responses/*"])
    assert http.get(address, headers=bearer(reader)).content == b"tokens"
    assert http.get(address, headers=bearer(other)).status_code == 403
    assert code(http.get(address, headers=bearer("wrong"))) == (401, "INVALID_SECRET")
    assert http.head(address, headers=bearer(reader)).status_code == 200
    assert http.head(address, headers=bearer(writer)).status_code == 200
    assert http.head(address, headers=bearer(other)).status_code == 403
    assert http.head(address, headers=bearer("wrong")).status_code == 401
    assert http.delete(address, headers=bearer(writer)).status_code == 403
    patch = http.patch(f"{address}?action=abort", headers=bearer(key(place, admin=["**"])))
    assert code(patch) == (401, "MISSING_SIGNATURE")
    assert http.delete(address, headers=bearer(cleaner)).status_code == 204
    assert http.delete(address, headers=bearer(cleaner)).status_code == 204
    assert code(http.get(location)) == (404, "STREAM_NOT_FOUND")


def test_a_wrong_signature_is_refused_though_the_key_would_do(
    place: House, http: httpx.Client, upstream: Upstream
) -> None:
    location = Proxy(http, key(place, write=["responses/*"])).open(f"{upstream.url}/a")
    admin = bearer(key(place, admin=["**"]))
    assert code(http.get(f"{location}x", headers=admin)) == (401, "SIGNATURE_INVALID")


def test_pages_learn_the_headers_and_may_send_them(place: House, http: httpx.Client) -> None:
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "PATCH"}
    answer = http.options("/v1/proxy", headers=asked)
    assert answer.status_code == 204
    assert "PATCH" in answer.headers["Access-Control-Allow-Methods"]
    allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"Upstream-URL", "Upstream-Method", "Upstream-Authorization"} <= set(allowed)
    exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert {"Location", "Upstream-Content-Type", "Upstream-Status"} <= set(exposed)
    assert "Stream-Close-Reason" in exposed


def test_secrets_are_not_logged(place: House, http: httpx.Client, upstream: Upstream) -> None:
    location = Proxy(http, key(place, write=["responses/*"])).open(
        f"{upstream.url}/a", Upstream_Authorization="Bearer sk-very-secret"
    )
    Proxy(http).follow(location)
    assert "sk-very-secret" not in place.server.stderr
    assert location.rpartition("=")[2] not in place.server.stderr
