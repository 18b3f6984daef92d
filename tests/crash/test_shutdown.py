"""SIGTERM ends the server in an orderly way, and hanging up does not cancel an append."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.crash.check import check_directory, until_readers
from tests.crash.faults import Disk, Fault
from tests.crash.wire import HOST, Event, EventStream, Lost, Reply, Wire, encode_request
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
WRITERS = 24
PATIENT = ("--shutdown-grace-ms", "180000")

pytestmark = [pytest.mark.late, pytest.mark.crash]


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    return start_server("--data", str(tmp_path), *PATIENT)


@asynccontextmanager
async def wires(server: ServerProcess, count: int) -> AsyncIterator[list[Wire]]:
    opened = [Wire(server.port) for _ in range(count)]
    try:
        yield opened
    finally:
        for wire in opened:
            await wire.close()


def check_not_begun(lost: Lost) -> None:
    if lost.begun:
        pytest.fail("half a response")


async def terminate(server: ServerProcess) -> None:
    """SIGTERM, and an orderly end well before anything would be cut off."""
    async with asyncio.timeout(90):
        assert await asyncio.to_thread(server.stop) == 0
    assert "Traceback" not in server.stderr


async def numbers(server: ServerProcess, path: str) -> list[int]:
    async with wires(server, 1) as (wire,):
        reply = await wire.request("GET", path, query="offset=-1")
    assert reply.status == 200
    assert reply.up_to_date
    found: list[int] = json.loads(reply.body)
    return found


# ── SIGTERM ──────────────────────────────────────────────────────────────────────────────────


async def test_under_load(server: ServerProcess, tmp_path: Path) -> None:
    acknowledged: dict[str, list[int]] = {}

    async def write(wire: Wire, path: str) -> None:
        assert (await wire.request("PUT", path, JSON)).status == 201
        acked = acknowledged.setdefault(path, [])
        try:
            for number in range(1_000_000):
                reply = await wire.request("POST", path, JSON, b"%d" % number)
                if reply.status == 503:
                    return  # Too late: it was told to stop.
                assert reply.status == 204
                acked.append(number)
        except Lost as lost:
            check_not_begun(lost)

    async with wires(server, WRITERS) as opened, asyncio.TaskGroup() as tasks:
        for index, wire in enumerate(opened):
            tasks.create_task(write(wire, f"w{index}"))
        await asyncio.sleep(1)
        for _ in range(600):
            if sum(map(len, acknowledged.values())) > WRITERS:
                break
            await asyncio.sleep(0.1)
        await terminate(server)

    check_directory(tmp_path)
    server.start()
    for path, acked in acknowledged.items():
        found = await numbers(server, path)
        # One more may have been under way.
        assert found in (acked, [*acked, len(acked)])
    assert sum(map(len, acknowledged.values())) > WRITERS


async def test_what_waits_for_a_commit_is_answered(
    start_server: StartServer, tmp_path: Path
) -> None:
    for attempt in range(4):
        # A machine may stall between the requests and the signal, though not always.
        with suppress(AssertionError, Lost):
            await wait_for_a_commit(start_server, tmp_path / str(attempt))
            return
    await wait_for_a_commit(start_server, tmp_path / "last")


async def wait_for_a_commit(start_server: StartServer, directory: Path) -> None:
    server = start_server("--data", str(directory), "--linger-ms", "700", *PATIENT)
    async with wires(server, 20) as opened:
        assert (await opened[0].request("PUT", "s", JSON)).status == 201
        waiting = [
            asyncio.create_task(wire.request("POST", "s", JSON, b"%d" % number))
            for number, wire in enumerate(opened)
        ]
        await asyncio.sleep(0.2)
        await terminate(server)
        replies = await asyncio.gather(*waiting)
    assert {reply.status for reply in replies} == {204}
    assert {reply.headers.get("connection") for reply in replies} == {"close"}
    server.start()
    assert sorted(await numbers(server, "s")) == list(range(20))


async def test_event_streams_end_cleanly(server: ServerProcess) -> None:
    received: dict[EventStream, list[Event]] = {}

    async def follow(path: str) -> None:
        stream = EventStream(server.port, path, "-1")
        events = received.setdefault(stream, [])
        async for event in stream.events():
            events.append(event)

    async def write(wire: Wire) -> None:
        try:
            for number in range(1_000_000):
                await wire.request("POST", "busy", JSON, b"%d" % number)
        except Lost as lost:
            check_not_begun(lost)

    async with wires(server, 1) as (wire,):
        for path in ("idle", "busy"):
            assert (await wire.request("PUT", path, JSON)).status == 201
        async with asyncio.TaskGroup() as tasks:
            for path in ("idle", "busy"):
                for _ in range(20):
                    tasks.create_task(follow(path))
            tasks.create_task(write(wire))
            for path in ("idle", "busy"):
                await until_readers(server.port, path, 20)
            await asyncio.sleep(0.5)
            await terminate(server)

    assert len(received) == 40
    server.start()
    written = await numbers(server, "busy")
    for stream, events in received.items():
        assert stream.ended_cleanly
        assert events[-1].kind == "control"
        got = [
            number for event in events if event.kind == "data" for number in json.loads(event.data)
        ]
        assert got == written[: len(got)]


async def test_long_polls_are_answered(server: ServerProcess) -> None:
    async with wires(server, 20) as opened:
        created = await opened[0].request("PUT", "s", JSON, b"1")
        query = f"offset={created.next_offset}&live=long-poll"
        waiting = [asyncio.create_task(wire.request("GET", "s", query=query)) for wire in opened]
        await until_readers(server.port, "s", 20)
        await terminate(server)
        for reply in await asyncio.gather(*waiting):
            assert reply.status == 204
            assert reply.next_offset == created.next_offset


async def test_live_requests_on_their_way_to_the_disk(tmp_path: Path) -> None:
    """They came in time, but reach the tail of their stream when the server is already stopping."""
    for pause_s in (0.1, 0.2, 0.5, 1):
        # A slow machine may take longer than that to hear of them.
        with suppress(AssertionError):
            await stop_while_they_read(tmp_path / str(pause_s), pause_s)
            return
    await stop_while_they_read(tmp_path / "last", 5)


async def stop_while_they_read(directory: Path, pause_s: float) -> None:
    disk = Disk(directory.with_name(f"{directory.name}-fault"))
    with ServerProcess("--data", str(directory), *PATIENT, env=disk.environment) as server:
        async with wires(server, 1) as (wire,):
            for path in ("polled", "followed"):
                assert (await wire.request("PUT", path, JSON, b"1")).status == 201
        server.restart()
        disk.fail(Fault.SLOW_READ)
        stream = EventStream(server.port, "followed", "now")

        async def follow() -> list[Event]:
            return [event async for event in stream.events()]

        async with wires(server, 1) as (wire,):
            polling = asyncio.create_task(
                wire.request("GET", "polled", query="offset=now&live=long-poll")
            )
            following = asyncio.create_task(follow())
            await asyncio.sleep(pause_s)
            try:
                await terminate(server)
            finally:
                answers = await asyncio.gather(polling, following, return_exceptions=True)
        assert isinstance(answers[0], Reply)
        assert answers[0].status == 204
        assert not isinstance(answers[1], BaseException)
        assert stream.ended_cleanly


async def test_peers_that_do_not_care(start_server: StartServer, tmp_path: Path) -> None:
    """One does not read, one never finishes its request: they are cut off when time is up."""
    server = start_server("--data", str(tmp_path), "--shutdown-grace-ms", "500")
    text = {"Content-Type": "text/plain"}
    with socket.create_connection((HOST, server.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with wires(server, 1) as (wire,):
            assert (await wire.request("PUT", "s", text, b"x" * 8_000_000)).status == 201
        deaf.sendall(encode_request("GET", "/v1/stream/s?offset=-1", {}, b""))
        with socket.create_connection((HOST, server.port)) as unfinished:
            unfinished.sendall(encode_request("POST", "/v1/stream/s", text, b"12345")[:-1])
            await asyncio.sleep(0.1)
            await terminate(server)


async def test_a_second_signal_changes_nothing(server: ServerProcess) -> None:
    async with wires(server, 1) as (wire,):
        created = await wire.request("PUT", "s", JSON, b"1")
        assert created.status == 201
        os.kill(server.pid, signal.SIGTERM)
        os.kill(server.pid, signal.SIGINT)
        await terminate(server)
    server.start()
    assert await numbers(server, "s") == [1]


# ── Hanging up ───────────────────────────────────────────────────────────────────────────────


def hang_up(sock: socket.socket) -> None:
    sock.close()


def reset(sock: socket.socket) -> None:
    """Close so that the peer gets an error and not an end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def stamped(seq: int) -> dict[str, str]:
    return {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq)}


@pytest.mark.parametrize("leave", [hang_up, reset])
async def test_hanging_up_does_not_cancel_an_append(
    leave: Callable[[socket.socket], None], server: ServerProcess
) -> None:
    """Everything was sent, nobody waits for the answer: it is stored as a whole or not at all."""
    path = "/v1/stream/s"
    count = 60
    async with wires(server, 1) as (wire,):
        assert (await wire.request("PUT", "s", JSON)).status == 201
        assert (await wire.request("PUT", "t", JSON)).status == 201
        for number in range(count):
            # Several messages, and more than fits into one packet.
            batch = json.dumps([number] * 20_000).encode()
            sock = socket.create_connection((HOST, server.port))
            sock.sendall(encode_request("POST", path, JSON, batch))
            leave(sock)
            sock = socket.create_connection((HOST, server.port))
            sock.sendall(encode_request("POST", "/v1/stream/t", stamped(number), b"%d" % number))
            leave(sock)
            # The producer does not know either, and asks again.
            again = await wire.request("POST", "t", stamped(number), b"%d" % number)
            assert again.status in (200, 204)
        assert await numbers(server, "t") == list(range(count))

        # What arrived in full before an orderly end is always carried out, however slow the disk.
        stored = await everything(wire, "s", 20_000 * count if leave is hang_up else 0)
        assert len(stored) % 20_000 == 0, "an append is torn"
        for first in range(0, len(stored), 20_000):
            assert len(set(stored[first : first + 20_000])) == 1
        kept = stored[::20_000]
        assert len(set(kept)) == len(kept), "an append is there twice"
        if leave is hang_up:
            assert sorted(kept) == list(range(count))


async def everything(wire: Wire, path: str, expected: int) -> list[int]:
    """All messages: at least those that must come, then until nothing is added for a while."""
    found: list[int] = []
    offset, quiet = "-1", 0
    async with asyncio.timeout(60):
        while quiet < 5 or len(found) < expected:
            reply: Reply = await wire.request("GET", path, query=f"offset={offset}")
            more: list[int] = json.loads(reply.body)
            found += more
            offset = reply.next_offset
            if reply.up_to_date:
                quiet = 0 if more else quiet + 1
                await asyncio.sleep(0.1)
    return found


async def test_half_a_request_is_no_append(server: ServerProcess) -> None:
    async with wires(server, 1) as (wire,):
        assert (await wire.request("PUT", "s", JSON)).status == 201
        request = encode_request("POST", "/v1/stream/s", JSON, b"[1,2,3]")
        for cut in range(1, len(request), 5):
            for leave in (hang_up, reset):
                sock = socket.create_connection((HOST, server.port))
                sock.sendall(request[:cut])
                leave(sock)
        await asyncio.sleep(0.2)
        assert await numbers(server, "s") == []
