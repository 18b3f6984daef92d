"""Listing, details, health, and what browsers ask first."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.http.client import CLOSE, JSON, TEXT, Client, fresh
from tests.http.wire import request_bytes

# ── Listing ──────────────────────────────────────────────────────────────────────────────────


def listed(client: Client, query: str) -> tuple[list[str], str | None]:
    page = client.json(f"/v1/streams?{query}")
    assert page.keys() == {"streams", "next"}
    return [stream["name"] for stream in page["streams"]], page["next"]


@pytest.fixture
def family(client: Client) -> list[str]:
    root = fresh("list")
    names = [f"{root}/{name}" for name in ("a", "a/x", "b", "b_c", "bxc", "c%25d", "d")]
    for name in names:
        client.create(TEXT, path=name)
    return sorted(name.replace("%25", "%") for name in names)


def test_a_listing_is_sorted(client: Client, family: list[str]) -> None:
    root = family[0].partition("/")[0]
    assert listed(client, f"prefix={root}/") == (family, None)


def test_a_prefix_is_no_pattern(client: Client, family: list[str]) -> None:
    root = family[0].partition("/")[0]
    assert listed(client, f"prefix={root}/b_")[0] == [f"{root}/b_c"]
    assert listed(client, f"prefix={root}/c%25")[0] == [f"{root}/c%d"]
    for pattern in ("%25", "*", "%3F", "[a]", "B", "_", ".", "%00"):
        assert listed(client, f"prefix={root}/{pattern}")[0] == [], pattern


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_pages(client: Client, family: list[str], size: int) -> None:
    root = family[0].partition("/")[0]
    seen, after = [], ""
    for _ in itertools.repeat(None, len(family) + 1):
        page, following = listed(client, f"prefix={root}/&after={after}&limit={size}")
        assert len(page) <= size
        seen += page
        if following is None:
            break
        assert following == page[-1]
        after = following.replace("%", "%25")
    assert seen == family


def test_after_a_name_that_is_not_there(client: Client, family: list[str]) -> None:
    root = family[0].partition("/")[0]
    assert (
        listed(client, f"prefix={root}/&after={root}/bb")[0]
        == family[family.index(f"{root}/bxc") :]
    )
    assert listed(client, f"prefix={root}/&after={root}/zzz") == ([], None)
    assert listed(client, f"prefix={root}/&after=")[0] == family


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=1001", "limit=1.5",
                                   "limit=" + "9" * 50, "prefix=%FF", "prefix=\xff"])  # fmt: skip
def test_a_bad_query(client: Client, query: str) -> None:
    assert client.send("GET", f"/v1/streams?{query}").status == 400


def test_the_largest_page(client: Client) -> None:
    assert client.send("GET", "/v1/streams?limit=1000").status == 200


def test_unknown_parameters_are_ignored(client: Client, family: list[str]) -> None:
    root = family[0].partition("/")[0]
    assert listed(client, f"colour=red&prefix={root}/&x=")[0] == family


def test_a_deleted_stream_is_not_listed(client: Client, family: list[str]) -> None:
    root = family[0].partition("/")[0]
    client.delete(family[0])
    assert listed(client, f"prefix={root}/")[0] == family[1:]


def test_a_listing_is_not_kept(client: Client) -> None:
    assert client.send("GET", "/v1/streams").headers["Cache-Control"] == "no-store"


# ── What is said of a stream ─────────────────────────────────────────────────────────────────


def described(client: Client, path: str) -> dict[str, Any]:
    """What the listing says of a stream, which is also in its details."""
    (entry,) = client.json(f"/v1/streams?prefix={path}")["streams"]
    details: dict[str, Any] = client.json(f"/v1/stream/{path}/_details")
    assert entry.items() <= details.items()
    return details


def test_details_of_an_empty_stream(client: Client) -> None:
    path = client.create(TEXT)
    details = described(client, path)
    assert details["name"] == path
    assert details["content_type"] == "text/plain"
    assert details["tail"] == client.head(path).next_offset
    assert details["closed"] is False
    assert (details["size_bytes"], details["messages"]) == (0, 0)
    assert (details["ttl_s"], details["expires_at"]) == (None, None)
    assert (details["forks"], details["forked_from"]) == (0, None)
    assert (details["producers"], details["readers"]) == (0, 0)
    assert details["created"] > 1_700_000_000_000


def test_details_follow_the_stream(client: Client) -> None:
    path = client.create(JSON | {"Stream-TTL": "3600"}, b"[1,2]", b"3")
    stamp = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    client.post(path, b"4", JSON | CLOSE | stamp)
    fork = client.create(JSON | {"Stream-Forked-From": path, "Stream-TTL": "60"})
    details = described(client, path)
    assert details["tail"] == client.head(path).next_offset
    assert details["closed"] is True
    assert details["messages"] == 4
    assert details["size_bytes"] > 0
    assert (details["ttl_s"], details["producers"], details["forks"]) == (3600, 1, 1)
    assert described(client, fork)["forked_from"] == path
    assert described(client, fork)["messages"] == 4


def test_details_show_the_expiry(client: Client) -> None:
    path = client.create(TEXT | {"Stream-Expires-At": "2100-01-01T00:00:00Z"})
    assert described(client, path)["expires_at"] == 4_102_444_800_000


def test_details_count_live_readers(client: Client) -> None:
    path = client.create(TEXT)
    with client.events(path), client.long_poll(path, "offset=now"):
        assert described(client, path)["readers"] == 2


@pytest.mark.parametrize("method, status", [("GET", 404), ("HEAD", 404), ("POST", 405),
                                            ("DELETE", 405), ("PUT", 400)])  # fmt: skip
def test_details_of_no_stream(client: Client, method: str, status: int) -> None:
    assert client.send(method, f"/v1/stream/{fresh()}/_details").status == status


def test_details_by_head(client: Client) -> None:
    path = client.create(TEXT)
    assert client.send("HEAD", f"/v1/stream/{path}/_details").status == 200


# ── Health ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", ["/healthz", "/readyz"])
def test_health(client: Client, target: str) -> None:
    for method in ("GET", "HEAD"):
        reply = client.send(method, target)
        assert reply.status == 200
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["Content-Type"] == "application/json"
    assert json.loads(client.send("GET", target).body).keys() == {"status"}


def test_the_front_page(client: Client) -> None:
    assert client.send("GET", "/").status == 200
    assert client.send("HEAD", "/").status == 200


# ── CORS ─────────────────────────────────────────────────────────────────────────────────────

REQUEST_HEADERS = {
    "authorization", "content-type", "if-none-match", "stream-ttl", "stream-expires-at",
    "stream-closed", "stream-seq", "stream-forked-from", "stream-fork-offset",
    "stream-fork-sub-offset", "producer-id", "producer-epoch", "producer-seq",
}  # fmt: skip
RESPONSE_HEADERS = {
    "etag", "location", "retry-after", "stream-next-offset", "stream-cursor", "stream-up-to-date",
    "stream-closed", "stream-ttl", "stream-expires-at", "stream-sse-data-encoding",
    "producer-epoch", "producer-seq", "producer-expected-seq", "producer-received-seq",
}  # fmt: skip


def names(value: str) -> set[str]:
    return {name.strip().lower() for name in value.split(",")}


@pytest.mark.parametrize("target", ["/v1/stream/a", "/v1/stream/a/_details", "/v1/streams", "*"])
def test_preflight(start_server: StartServer, target: str) -> None:
    server = start_server("--memory", "--cors-origin", "*")
    headers = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "producer-id, stream-closed",
    }
    with Client(server).wire() as wire:
        reply = wire.request("OPTIONS", target, headers)
    assert reply.status == 204
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    allowed = reply.headers["Access-Control-Allow-Headers"]
    assert names(allowed) >= REQUEST_HEADERS
    assert names(reply.headers["Access-Control-Allow-Methods"]) >= {
        "get", "head", "put", "post", "delete"
    }  # fmt: skip
    assert names(reply.headers["Access-Control-Expose-Headers"]) >= RESPONSE_HEADERS


def test_origins_can_be_listed(start_server: StartServer) -> None:
    """Each is told that it may, and nobody is told of the others."""
    origins = ["https://app.example", "http://localhost:3000"]
    client = Client(start_server("--memory", "--cors-origin", ", ".join(origins)))
    others = [None, "https://evil.example", "https://app.example.evil", "HTTPS://APP.EXAMPLE", "*"]
    with client.wire() as wire:
        for target in ("/healthz", "/nowhere", "/v1/stream/unknown"):
            for origin in [*origins, *others]:
                sent = {} if origin is None else {"Origin": origin}
                for method in ("GET", "OPTIONS"):
                    headers = wire.request(method, target, sent).headers
                    allowed = headers.get("Access-Control-Allow-Origin")
                    assert allowed == (origin if origin in origins else None)
                    assert "Origin" in headers["Vary"]
                    assert headers["X-Content-Type-Options"] == "nosniff"


def test_an_origin_is_told_on_event_streams_too(start_server: StartServer) -> None:
    client = Client(start_server("--memory", "--cors-origin", "https://app.example"))
    with client.wire() as wire:
        wire.request("PUT", "/v1/stream/a", {"Content-Type": "text/plain"})
        wire.send(
            request_bytes(
                "GET", "/v1/stream/a?offset=-1&live=sse", {"Origin": "https://app.example"}
            )
        )
        assert wire.head().headers["Access-Control-Allow-Origin"] == "https://app.example"


def test_cors_can_be_off(start_server: StartServer) -> None:
    client = Client(start_server("--memory", "--cors-origin", ""))
    with client.wire() as wire:
        headers = wire.request("GET", "/healthz").headers
    assert not [name for name, _ in headers.fields if name.lower().startswith("access-control-")]
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
