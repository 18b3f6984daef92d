"""What the log says about requests, what it calls them, and what it never says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from headwater.core.limits import Limits
from headwater.http.messages import Request, Response, request_id
from headwater.http.observe.traffic import Traffic
from headwater.http.wire.server import Server
from tests.conftest import StartServer
from tests.http.client import TEXT, Client, fresh, producer
from tests.support.server import ServerProcess

SECRET = "c0ffee-and-cake"
JSON_LOGS = ("--memory", "--log-format", "json", "--log-level", "debug")


def lines(server: ServerProcess, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in server.stderr.splitlines()]
    return [line for line in found if line["event"] == event]


def test_the_access_log(start_server: StartServer) -> None:
    client = Client(start_server(*JSON_LOGS, "--access-log"))
    path = fresh()
    client.send("PUT", f"/v1/stream/{path}?x=1", {**TEXT, "X-Request-Id": "till-7"}, b"abc")
    client.get("missing")
    created, missing = lines(client.server, "request")[-2:]
    assert created["level"] == "info"
    assert (created["request_id"], created["status"], created["request_bytes"]) == (
        "till-7",
        201,
        3,
    )
    assert (created["method"], created["path"]) == ("PUT", f"/v1/stream/{path}")
    assert missing["status"] == 404
    assert created["route"] == "/v1/stream/{path}"
    assert missing["request_id"] != created["request_id"]


def test_no_access_log_unless_asked_for(start_server: StartServer) -> None:
    client = Client(start_server(*JSON_LOGS))
    client.create(TEXT, b"a")
    assert lines(client.server, "request") == []


def test_slow_requests(start_server: StartServer) -> None:
    client = Client(start_server(*JSON_LOGS, "--slow-request-ms", "1", "--producer-wait-ms", "50"))
    path = client.create(TEXT)
    # It waits for the one before it, which never comes.
    early = {**TEXT, **producer(0, 1), "X-Request-Id": "early"}
    assert client.post(path, b"x", early).status == 409
    slow = [line for line in lines(client.server, "slow_request") if line["request_id"] == "early"]
    assert [line["level"] for line in slow] == ["warning"]
    assert slow[0]["took_ms"] > 1


def test_those_who_wait_are_not_slow(start_server: StartServer) -> None:
    settings = ("--slow-request-ms", "1", "--long-poll-timeout-ms", "50")
    client = Client(start_server(*JSON_LOGS, *settings))
    path = client.create(TEXT)
    headers = {"X-Request-Id": "patient"}
    assert client.get(path, "offset=now&live=long-poll", headers).status == 204
    assert "patient" not in client.server.stderr


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_secrets_are_never_logged(start_server: StartServer, log_format: str) -> None:
    loud = ("--access-log", "--slow-request-ms", "1", "--log-level", "debug")
    client = Client(start_server("--memory", "--log-format", log_format, *loud))
    path = client.create(TEXT)
    secret = {
        **TEXT,
        "Authorization": f"Bearer {SECRET}",
        "Cookie": f"session={SECRET}",
        "X-Request-Id": f"{SECRET} is no name",
        "Stream-Seq": SECRET,
        "traceparent": SECRET,
    }
    target = f"/v1/stream/{path}?offset=-1&token={SECRET}"
    for method in ("GET", "POST", "PUT", "HEAD", "PATCH"):
        client.send(method, target, secret, SECRET.encode())
    client.post(path, SECRET.encode(), {**secret, **producer(0, 9, SECRET)})
    client.send("GET", f"http://me:{SECRET}@host/v1/stream/{path}", secret)
    client.send("POST", f"/v1/transaction?{SECRET}", secret, f'{{"{SECRET}": 1}}'.encode())
    client.send("POST", f"/v1/stream/{path}/_groups/g/ack", secret, f'["{SECRET}"]'.encode())
    with client.wire() as wire:
        wire.send(f"GET /?{SECRET}\r\nAuthorization: {SECRET}\r\n\r\n".encode())
        wire.reply()
    assert "request" in client.server.stderr
    assert SECRET not in client.server.stderr


# ── Names ────────────────────────────────────────────────────────────────────────────────────


def test_a_name_comes_back_to_those_who_gave_one(server: ServerProcess) -> None:
    client = Client(server)
    path = client.create(TEXT)
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        reply = client.send(method, f"/v1/stream/{path}", {"X-Request-Id": "a.b:c-1"})
        assert reply.headers["X-Request-Id"] == "a.b:c-1"
        assert "X-Request-Id" not in client.send(method, f"/v1/stream/{path}").headers


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "naïve", '"', "a\tb"])
def test_a_name_that_could_confuse_is_replaced(server: ServerProcess, name: str) -> None:
    client = Client(server)
    made = {
        client.send("GET", "/healthz", {"X-Request-Id": name}).headers["X-Request-Id"]
        for _ in range(2)
    }
    assert len(made) == 2
    assert name not in made


def test_names_that_are_made_differ_and_would_be_taken() -> None:
    made = [request_id(None) for _ in range(100)]
    assert len(set(made)) == 100
    assert [request_id(name.encode()) for name in made] == made


async def test_a_failure_can_be_found_in_the_log() -> None:
    def broken(request: Request) -> Response:
        raise RuntimeError("a fuse blew")

    server = Server(broken, Limits())
    port = await server.start("127.0.0.1", 0)
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    await server.stop(0)
    (line,) = [line for line in logs if line["event"] == "unexpected_error"]
    assert head.startswith("HTTP/1.1 500")
    assert f"X-Request-Id: {line['request_id']}" in head
    assert json.loads(body)["error"]["code"] == "internal_error"
    assert "fuse" in line["error"]
    assert "fuse" not in body


def test_whoever_watches_does_not_keep_a_request_from_its_answer() -> None:
    def broken(request: Request, status: int, took_s: float) -> None:
        raise RuntimeError("I cannot look")

    seen: list[int] = []
    traffic = Traffic()
    traffic.watchers += [broken, lambda request, status, took_s: seen.append(status)]
    with capture_logs() as logs:
        traffic.answered(Request("GET", b"/", b"", {}), 200, "")
    assert seen == [200]
    assert [line["event"] for line in logs] == ["watcher_failed"]
