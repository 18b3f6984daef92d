"""The disk fails under a running server: it says so, shows nothing of it, and recovers by itself.

Faults come from a layer between SQLite and its files (see `faults`), from a limit on file sizes
that the kernel enforces, and, where the tests may mount one, from a file system that is full.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import uvloop

from headwater.store.disk_reserve import RESERVE_NAME
from tests.conftest import StartServer
from tests.crash.check import check_directory, until_more, until_readers
from tests.crash.crew import Crew
from tests.crash.faults import WRITE_FAULTS, Disk, Fault
from tests.crash.wire import EventStream, Lost, Reply, Wire
from tests.support.server import ServerFailedError, ServerProcess

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
MIB = 1024 * 1024

pytestmark = [pytest.mark.late, pytest.mark.crash]


def stamped(seq: int) -> dict[str, str]:
    return {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq)}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "fault")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(disk: Disk, data: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--data", str(data), env=disk.environment) as server:
        yield server


async def prepare(wire: Wire) -> None:
    """Streams with something acknowledged in them."""
    assert (await wire.request("PUT", "text", TEXT, b"one ")).status == 201
    assert (await wire.request("PUT", "json", JSON, b"[1,2]")).status == 201
    assert (await wire.request("PUT", "other", TEXT, b"other")).status == 201
    assert (await wire.request("POST", "text", stamped(0), b"two ")).status == 200


async def ask_for_everything(wire: Wire) -> list[Reply]:
    """Every kind of request that has to write something."""
    closing = {"Stream-Closed": "true"}
    return [
        await wire.request("POST", "text", TEXT, b"lost"),
        await wire.request("POST", "text", stamped(1), b"three "),
        await wire.request("POST", "text", {**TEXT, **closing}, b"lost"),
        await wire.request("POST", "json", JSON, b'[{"lost":1},{"lost":2}]'),
        await wire.request("POST", "json", closing),
        await wire.request("PUT", "new", TEXT, b"lost"),
        await wire.request("PUT", "fork", {"Stream-Forked-From": "text"}),
        await wire.request("DELETE", "other"),
        # Larger than what SQLite keeps before it writes.
        await wire.request("POST", "text", TEXT, b"x" * (2 * MIB)),
    ]


def assert_unavailable(reply: Reply) -> None:
    assert reply.status == 503, reply
    assert reply.headers["retry-after"].isdigit()
    assert json.loads(reply.body)["error"]["code"] in ("storage_unavailable", "storage_full")


async def assert_as_prepared(wire: Wire, text: bytes = b"one two ") -> None:
    for path, content in (("text", text), ("json", b"[1,2]"), ("other", b"other")):
        reply = await wire.request("GET", path, query="offset=-1")
        assert (reply.status, reply.body, reply.closed) == (200, content, False)
        assert reply.up_to_date
    assert (await wire.request("GET", "new")).status == 404
    assert (await wire.request("GET", "fork")).status == 404


@pytest.mark.parametrize("fault", WRITE_FAULTS)
async def test_a_failing_disk(fault: Fault, server: ServerProcess, disk: Disk, data: Path) -> None:
    wire = Wire(server.port)
    await prepare(wire)

    disk.fail(fault)
    for reply in await ask_for_everything(wire):
        assert_unavailable(reply)
    await assert_as_prepared(wire)

    disk.recover()
    # The producer sends its unanswered request again, and then again without need.
    assert (await wire.request("POST", "text", stamped(1), b"three ")).status == 200
    assert (await wire.request("POST", "text", stamped(1), b"three ")).status == 204
    await assert_as_prepared(wire, b"one two three ")

    await wire.close()
    server.kill()
    check_directory(data)
    server.start()
    await assert_as_prepared(wire, b"one two three ")
    await wire.close()


@pytest.mark.parametrize("fault", [Fault.SYNC_FAILS, Fault.SHORT_WRITE])
async def test_what_was_refused_stays_away_after_a_crash(
    fault: Fault, server: ServerProcess, disk: Disk, data: Path
) -> None:
    """A commit whose sync failed is in the log file all the same: recovery must not find it."""
    wire = Wire(server.port)
    await prepare(wire)
    for method, path, headers, body in (
        ("POST", "text", TEXT, b"lost"),
        ("POST", "json", {"Stream-Closed": "true"}, b""),
        ("DELETE", "other", {}, b""),
    ):
        disk.fail(fault)
        assert_unavailable(await wire.request(method, path, headers, body))
        await wire.close()
        server.kill()
        disk.recover()
        check_directory(data)
        server.start()
        await assert_as_prepared(wire)
    await wire.close()


async def test_what_may_come_back_after_a_crash_is_not_said_to_be_refused(
    server: ServerProcess, disk: Disk, data: Path
) -> None:
    """The sync of a commit fails, and then the write that should take it back."""
    wire = Wire(server.port)
    await prepare(wire)
    disk.fail(Fault.DIES)
    with pytest.raises(Lost):
        await wire.request("POST", "text", stamped(1), b"three ")
    await wire.close()
    server.kill()
    disk.recover()
    check_directory(data)
    server.start()
    assert (await wire.request("POST", "text", stamped(1), b"three ")).status == 204, "it was there"
    await assert_as_prepared(wire, b"one two three ")
    await wire.close()


@pytest.mark.parametrize("fault", WRITE_FAULTS)
async def test_live_readers_do_not_notice(fault: Fault, server: ServerProcess, disk: Disk) -> None:
    wire, poll = Wire(server.port), Wire(server.port)
    await prepare(wire)
    tail = (await wire.request("HEAD", "text")).next_offset
    events: list[tuple[str, bytes]] = []

    async def follow() -> None:
        async for event in EventStream(server.port, "text", "-1").events():
            events.append((event.kind, event.data))

    following = asyncio.create_task(follow())
    polling = asyncio.create_task(
        poll.request("GET", "text", query=f"offset={tail}&live=long-poll")
    )
    await until_readers(server.port, "text", 2)
    disk.fail(fault)
    for reply in await ask_for_everything(wire):
        assert_unavailable(reply)
    await assert_as_prepared(wire)
    assert not polling.done()
    disk.recover()
    assert (await wire.request("POST", "text", TEXT, b"three")).status == 204

    polled = await asyncio.wait_for(polling, 60)
    assert (polled.status, polled.body) == (200, b"three")
    closed = await wire.request("POST", "text", {"Stream-Closed": "true"})
    assert closed.status == 204
    await asyncio.wait_for(following, 60)
    assert [data for kind, data in events if kind == "data"] == [b"one two ", b"three"]
    assert {kind for kind, _ in events} == {"data", "control"}
    await wire.close()
    await poll.close()


def test_a_disk_that_comes_and_goes_under_load(
    server: ServerProcess, disk: Disk, data: Path, seed: int
) -> None:
    rng = Random(seed)

    async def trouble(crew: Crew) -> None:
        # A busy machine gets to little in that time, so what has to happen is waited for.
        is_sound = True
        for _ in range(6):
            done = crew.done
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            if is_sound:
                await until_more(lambda: crew.done, done + 40)
            disk.fail(rng.choice(WRITE_FAULTS))
            refused = crew.unavailable
            await asyncio.sleep(rng.uniform(0.02, 0.3))
            await until_more(lambda: crew.unavailable, refused + 2)
            if is_sound := rng.random() < 0.8:
                disk.recover()
        server.kill()
        disk.recover()

    async def scenario() -> None:
        crew = Crew(server.port, rng)
        for _ in range(2):
            await crew.work_until(trouble(crew))
            check_directory(data)
            server.start()
            await crew.check()
        await crew.check_everything()
        assert crew.unavailable > 20
        assert crew.done > 200

    uvloop.run(scenario())


async def test_logs_on_the_same_full_disk(disk: Disk, data: Path) -> None:
    """A line that cannot be logged must not keep anyone from an answer."""
    environment = {**disk.environment, "FAULTS_LOG": "/dev/full"}
    with ServerProcess("--data", str(data), env=environment) as server:
        wire = Wire(server.port)
        await prepare(wire)
        disk.fail(Fault.DISK_FULL)
        async with asyncio.timeout(60):
            for reply in await ask_for_everything(wire):
                assert_unavailable(reply)
        await assert_as_prepared(wire)
        disk.recover()
        async with asyncio.timeout(60):
            assert (await wire.request("POST", "text", stamped(1), b"three ")).status == 200
        await wire.close()


# ── Without a layer of our own ───────────────────────────────────────────────────────────────


async def fill_and_free(
    port: int, data: Path, fill: Callable[[], None], free: Callable[[], None]
) -> None:
    """Append until there is no room, see that reads go on, make room, append again."""
    wire = Wire(port)
    await prepare(wire)
    acknowledged: list[int] = []
    fill()
    for number in range(2_000):
        body = b'{"n":%d,"pad":"%b"}' % (number, b"x" * 1_000)
        reply = await wire.request("PUT" if number == 0 else "POST", "numbers", JSON, body)
        if reply.status == 503:
            break
        acknowledged.append(number)
    else:
        pytest.fail("there was room for everything")
    for _ in range(5):
        assert_unavailable(await wire.request("POST", "text", TEXT, b"y" * 100_000))
    await assert_as_prepared(wire)
    if acknowledged:
        reply = await wire.request("GET", "numbers", query="offset=-1")
        assert [message["n"] for message in json.loads(reply.body)] == acknowledged
    free()
    assert (await wire.request("POST", "text", stamped(1), b"three ")).status == 200
    await wire.close()


async def assert_survived(server: ServerProcess, data: Path) -> None:
    server.kill()
    check_directory(data)
    server.start()
    wire = Wire(server.port)
    await assert_as_prepared(wire, b"one two three ")
    await wire.close()


async def test_files_that_may_not_grow(start_server: StartServer, data: Path) -> None:
    """The kernel cuts a write at the limit, in the middle of a page, and refuses the next."""
    server = start_server("--data", str(data))
    unlimited = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)

    def fill() -> None:
        files = (file for file in data.iterdir() if file.name != RESERVE_NAME)
        largest = max(file.stat().st_size for file in files)
        limit = (largest + 50_000, unlimited[1])
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limit)

    def free() -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, unlimited)

    await fill_and_free(server.port, data, fill, free)
    await assert_survived(server, data)


@pytest.fixture
def small_filesystem(data: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    data.mkdir()
    size = f"size={getattr(request, 'param', '4m')}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "headwater-test", str(data)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        yield data
    finally:
        subprocess.run(["umount", str(data)], check=True)


async def test_a_full_file_system(small_filesystem: Path, start_server: StartServer) -> None:
    server = start_server("--data", str(small_filesystem))
    ballast = small_filesystem / "ballast"

    def fill() -> None:
        free_bytes = shutil.disk_usage(small_filesystem).free
        ballast.write_bytes(bytes(free_bytes - 100_000))

    await fill_and_free(server.port, small_filesystem, fill, ballast.unlink)
    await assert_survived(server, small_filesystem)
    server.stop()


@pytest.mark.parametrize("small_filesystem", ["64m"], indirect=True)
async def test_a_full_file_system_can_be_emptied(
    small_filesystem: Path, start_server: StartServer
) -> None:
    """Nothing outside the server makes room: it has to come from deleting streams."""
    server = start_server("--data", str(small_filesystem))
    wire = Wire(server.port)
    await prepare(wire)
    number = 0
    reply = await wire.request("PUT", "bulk/0", TEXT, b"x" * 500_000)
    while reply.status == 201:
        number += 1
        reply = await wire.request("PUT", f"bulk/{number}", TEXT, b"x" * 500_000)
    assert json.loads(reply.body)["error"]["code"] == "storage_full"
    ready = await wire.call("GET", "/readyz")
    assert ready.status == 200
    assert "disk" in json.loads(ready.body)["problems"]
    for _ in range(3):
        refused = await wire.request("POST", "text", TEXT, b"z" * 2_000_000)
        assert json.loads(refused.body)["error"]["code"] == "storage_full"
    assert (await wire.request("POST", "other", {"Stream-Closed": "true"})).status == 204
    for which in range(number):
        assert (await wire.request("DELETE", f"bulk/{which}")).status == 204
    for _ in range(100):
        reply = await wire.request("POST", "text", stamped(1), b"three ")
        if reply.status == 200:
            break
        await asyncio.sleep(0.2)
    assert reply.status == 200
    ready = await wire.call("GET", "/readyz")
    assert json.loads(ready.body) == {"status": "ready"}
    assert (small_filesystem / RESERVE_NAME).stat().st_blocks > 0, "it is there for the next time"
    await wire.close()
    server.kill()
    check_directory(small_filesystem)


# ── Starting ─────────────────────────────────────────────────────────────────────────────────


def test_starting_on_a_full_disk_is_refused_in_one_line(disk: Disk, data: Path) -> None:
    disk.fail(Fault.DISK_FULL)
    server = ServerProcess("--data", str(data), env=disk.environment)
    with pytest.raises(ServerFailedError):
        server.start()
    (line,) = server.stderr.strip().splitlines()
    assert line.startswith("headwater: ")
    disk.recover()
    server.start()
    assert server.stop() == 0
