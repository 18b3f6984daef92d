"""What web pages can do with a server: nothing, unless it was opened for them."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import nullcontext

import pytest

from headwater.core.content_types import media_type
from headwater.core.errors import JsonRequired
from headwater.http.browsers import Browsers
from headwater.http.messages import Request
from headwater.http.routes import ROUTES
from headwater.http.routes.matching import locate
from tests.conftest import StartServer
from tests.http.client import JSON, TEXT, Client
from tests.http.wire import Reply
from tests.support.server import HOST

PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
FILLED = {
    "path": "a/b",
    "group": "g",
    "subscription": "s",
    "offset": "latest",
    "id": "r" * 24,
    "service": "notes",
}
UNSAFE = [route for route in ROUTES if route.method not in ("GET", "HEAD")]


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]["code"]


@pytest.mark.parametrize("route", UNSAFE, ids=lambda route: route.name)
def test_a_page_of_another_site_changes_nothing(client: Client, route: object) -> None:
    target = route.path.format_map(FILLED)  # type: ignore[attr-defined]
    method = route.method  # type: ignore[attr-defined]
    for headers in (PAGE, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        reply = client.send(method, target, headers | {"Content-Type": "text/plain"}, b"x")
        status, said = code(reply)
        # Some contracts write their codes in capitals.
        assert (status, said.lower()) == (403, "cross_site")


def test_the_error_says_which_setting_opens_it(client: Client) -> None:
    reply = client.send("POST", "/v1/transaction", PAGE, b"{}")
    assert b"--cors-origin https://evil.example" in reply.body
    reply = client.send("GET", "/healthz", {"Host": "evil.example:4437"})
    assert code(reply) == (421, "unknown_host")
    assert b"--allowed-host evil.example" in reply.body


def test_being_pushed_messages_of_a_group_changes_something(client: Client) -> None:
    path = client.create(JSON)
    group = f"/v1/stream/{path}/_groups/g"
    assert client.send("PUT", group, JSON, b"{}").status == 201
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert code(client.send("GET", f"{group}?live=sse&consumer=x", image)) == (
        403,
        "cross_site",
    )
    assert client.send("GET", group, image).status == 200


def test_a_page_of_another_site_is_not_told_what_it_reads(client: Client) -> None:
    path = client.create(TEXT)
    reply = client.get(path, headers=PAGE)
    assert reply.status == 200
    assert "Access-Control-Allow-Origin" not in reply.headers
    preflight = PAGE | {"Access-Control-Request-Method": "PUT"}
    reply = client.send("OPTIONS", f"/v1/stream/{path}", preflight)
    assert (reply.status, reply.headers.get("Access-Control-Allow-Origin")) == (204, None)


def test_the_servers_own_pages_do_what_they_like(client: Client) -> None:
    own = {"Origin": f"http://{HOST}"}
    for headers in (own, own | {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert client.send("PUT", "/v1/stream/own-pages", TEXT | headers).status in (200, 201)


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:4437", "localhost.evil"])
@pytest.mark.parametrize("target", ["/", "/v1/streams", "/v1/stream/a", "/console/", "/nowhere"])
def test_a_name_that_was_made_to_point_here_gets_nothing(
    client: Client, name: str, target: str
) -> None:
    assert code(client.send("GET", target, {"Host": name})) == (421, "unknown_host")
    assert code(client.send("POST", target, {"Host": name} | TEXT, b"x")) == (421, "unknown_host")


@pytest.mark.parametrize("target", ["/v1/transaction", "/v1/pipelines"])
def test_pages_say_that_json_is_json(start_server: StartServer, target: str) -> None:
    """Also where all of them are let in. What is no browser need not say anything."""
    server = start_server("--memory", "--cors-origin", "*")
    with Client(server).wire() as wire:
        for content_type in ({}, TEXT, {"Content-Type": "application/x-www-form-urlencoded"}):
            assert code(wire.request("POST", target, PAGE | content_type, b"{}")) == (
                415,
                "json_required",
            )
            reply = wire.request("POST", target, content_type, b"{}")
            assert code(reply) == (400, "invalid_body")
        assert code(wire.request("POST", target, PAGE | JSON, b"{}")) == (400, "invalid_body")


def test_what_pages_call_their_bodies_is_not_remembered_at_any_length() -> None:
    """It is looked at before anyone has to say who they are."""
    browsers, match = Browsers(None, None), locate(b"/v1/transaction")
    for ending, refused in ((b"/json" + b" " * 9_000, False), (b"/" + b"x" * 9_000, True)):
        headers = {b"origin": b"http://a", b"content-type": b"application" + ending}
        media_type.cache_clear()
        tracemalloc.start()
        for number in range(100):
            request = Request("POST", b"", b"", {**headers}, b"{}")
            request.headers[b"content-type"] += b"%d" % number if refused else b";%d" % number
            with pytest.raises(JsonRequired) if refused else nullcontext():
                browsers.check(request, match)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 100_000


def test_what_was_set_up_is_let_in(start_server: StartServer) -> None:
    settings = {
        "HEADWATER_CORS_ORIGIN": "https://app.example",
        "HEADWATER_ALLOWED_HOST": "streams.internal",
        "HEADWATER_PUBLIC_URL": "https://streams.example/x",
    }
    server = start_server("--memory", env=settings)
    with Client(server).wire() as wire:
        page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
        for host in ("streams.internal:4437", "streams.example", "localhost"):
            reply = wire.request("PUT", "/v1/stream/a", TEXT | page | {"Host": host})
            assert reply.status in (200, 201)
            assert reply.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert wire.request("PUT", "/v1/stream/a", TEXT | PAGE).status == 403
        assert wire.request("GET", "/healthz", {"Host": "other"}).status == 421


def test_everything_can_be_opened(start_server: StartServer) -> None:
    server = start_server("--memory", "--cors-origin", "*", "--allowed-host", "*")
    with Client(server).wire() as wire:
        reply = wire.request("PUT", "/v1/stream/a", TEXT | PAGE | {"Host": "any.example"})
        assert reply.status == 201
        assert reply.headers["Access-Control-Allow-Origin"] == "*"


def test_with_access_control_pages_need_a_key_and_nothing_else(start_server: StartServer) -> None:
    server = start_server("--memory", "--access", "on")
    with Client(server).wire() as wire:
        reply = wire.request("PUT", "/v1/stream/a", TEXT | PAGE | {"Host": "any.example"})
        assert reply.status == 401
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in reply.headers
