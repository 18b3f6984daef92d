"""Few file descriptors: connections leave enough of them, and whoever looks hears how it is."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop

from headwater.core.limits import Limits
from headwater.http.messages import Response
from headwater.http.wire.descriptors import Descriptors
from headwater.http.wire.server import Server
from tests.http.client import TEXT, Client, error_code, eventually
from tests.http.test_bodies_in_transit import figure
from tests.http.wire import EndedError, Wire, request_bytes
from tests.support.server import HOST, ServerProcess

FILES_MAX = 128


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[Client]:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -n {FILES_MAX}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with ServerProcess("--data", str(tmp_path / "data"), python=python) as server:
        yield Client(server)


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts files in /proc")
def test_a_flood_of_connections_leaves_files_for_the_log(poor: Client) -> None:
    began_s = time.monotonic()
    path = poor.create(TEXT)
    most = int(figure(poor, "headwater_connections_max"))
    assert 32 <= most <= FILES_MAX - 32
    with ExitStack() as stack:
        writer = stack.enter_context(poor.wire())
        assert writer.request("POST", f"/v1/stream/{path}", TEXT, b"a").status == 204
        flood = []
        for _ in range(3 * FILES_MAX):
            peer = stack.enter_context(socket.create_connection((HOST, poor.server.port), 10))
            flood.append(peer)
        # Files can be opened: streams are created, written and read, on a connection that was here.
        for number in range(10):
            target = f"/v1/stream/{path}-{number}"
            assert writer.request("PUT", target, TEXT).status == 201
            assert writer.request("POST", target, TEXT, b"b").status == 204
            assert writer.request("GET", target).body == b"b"
        eventually(lambda: open_files(poor.server) < FILES_MAX - 16)
        eventually(lambda: "connections_refused" in poor.server.stderr)
        eventually(lambda: probe(poor) == 200)

        def turned_away() -> bool:
            # Those that said nothing for too long have been hung up on by now.
            for _ in range(most):
                stack.enter_context(socket.create_connection((HOST, poor.server.port), 10))
            with poor.wire() as wire:
                wire.send_if_open(request_bytes("GET", f"/v1/stream/{path}"))
                reply = wire.reply()
            return reply.status == 503 and error_code(reply) == "too_many_connections"

        eventually(turned_away)
    eventually(lambda: status(poor, f"/v1/stream/{path}") == 200)
    said, minutes = poor.server.stderr.count("connections_refused"), time.monotonic() - began_s
    assert 1 <= said <= 1 + minutes // 60, "once a minute is enough"


def probe(client: Client) -> int:
    return status(client, "/readyz")


def status(client: Client, target: str) -> int:
    return asked(client, target)[0]


def asked(client: Client, target: str) -> tuple[int, str | None]:
    """The status of an answer, if there was one, and what becomes of its connection."""
    try:
        with Wire(client.server.port) as wire:
            wire.send_if_open(request_bytes("GET", target))
            reply = wire.reply()
            return reply.status, reply.headers.get("Connection")
    except (EndedError, OSError):
        return 0, None


def test_a_server_that_is_full_answers_probes(tmp_path: Path) -> None:
    with ServerProcess("--memory", "--connections-max", "10") as server, ExitStack() as stack:
        client = Client(server)
        for _ in range(10):
            wire = stack.enter_context(client.wire())
            assert wire.request("GET", "/healthz").status == 200
        for target in ("/healthz", "/readyz"):
            # Whoever takes longer than a second to ask is hung up on.
            eventually(lambda target=target: asked(client, target) == (200, "close"))  # type: ignore[misc]
        with client.wire() as wire:
            assert json.loads(wire.request("GET", "/v1/streams").body)["error"]["code"] == (
                "too_many_connections"
            )
        with client.wire() as silent:
            assert silent.reply().status == 503
            assert silent.is_at_end()


def test_strangers_who_say_nothing_do_not_keep_probes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However patient they are, and however often they come back."""
    monkeypatch.setattr("headwater.http.wire.connection._PROBE_S", 3600.0)
    most = 10
    strangers = most + 2 * Descriptors().probes_max

    async def statuses() -> list[bytes]:
        server = Server(lambda _: Response(200, []), Limits(connections_max=most))
        port = await server.start(HOST, 0)
        first_lines = []
        with ExitStack() as stack:
            for _ in range(3):
                for _ in range(strangers):
                    stack.enter_context(socket.create_connection((HOST, port), 10))
                reader, writer = await asyncio.open_connection(HOST, port)
                stack.callback(writer.close)
                writer.write(request_bytes("GET", "/healthz"))
                first_lines.append(await reader.readline())
        await server.stop(0)
        return first_lines

    assert uvloop.run(statuses()) == [b"HTTP/1.1 200 OK\r\n"] * 3


@pytest.mark.parametrize(
    "allowed, backlog, most",
    [(64, 16, 1), (256, 32, 112), (1024, 128, 640), (20_000, 2500, 17_244), (65_536, 4096, 20_000)],
)
def test_what_is_left_for_connections(
    monkeypatch: pytest.MonkeyPatch, allowed: int, backlog: int, most: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (allowed, allowed))
    descriptors = Descriptors()
    assert descriptors.backlog == backlog
    assert descriptors.connections_max(20_000) == most
    assert descriptors.connections_max(5) == min(5, most)


def test_none_left_at_all_is_said_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    descriptors = Descriptors()
    monkeypatch.setattr(Descriptors, "_can_open", staticmethod(lambda: False))
    for _ in range(5):
        descriptors.look(10, 0)
    heard = capsys.readouterr()
    assert (heard.out + heard.err).count("descriptors_exhausted") == 1


def test_a_burst_of_connections_is_accepted_in_few_turns_of_the_loop() -> None:
    """One in a turn, as libuv does by itself, would keep everyone else waiting for all of them."""
    burst = Descriptors().backlog // 2

    async def count_turns() -> int:
        server = Server(lambda _: Response(200, []), Limits())
        port = await server.start(HOST, 0)
        turns = 0
        with ExitStack() as stack:
            for _ in range(burst):
                stack.enter_context(socket.create_connection((HOST, port), 10))
            while server.connections < burst:
                await asyncio.sleep(0)
                turns += 1
        await server.stop(0)
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(count_turns()) < burst / 2
