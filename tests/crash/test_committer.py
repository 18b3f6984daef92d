"""The process that commits is killed, stopped and told to end, under load.

Whatever happens to it: what was acknowledged is there, what was refused is not, and what was
neither is there as a whole or not at all, once, and stays so.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest

from headwater.store.history.large_appends import LARGE_BYTES
from tests.conftest import StartServer
from tests.crash.check import check_directory, read_all
from tests.crash.faults import WRITE_FAULTS, Disk, Fault
from tests.crash.history import Kind
from tests.crash.power import PoweredServer
from tests.crash.wire import Lost, Reply, Wire
from tests.support.processes import (
    bytes_written,
    committer_of,
    committers,
    committers_in,
    is_committer,
    is_locked,
    wait_until,
)
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
GROUP = "_groups/g"
SINGLE = {"HEADWATER_COMMIT_PROCESS": "false"}

pytestmark = [
    pytest.mark.late,
    pytest.mark.crash,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is a committer with two cores"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--data", str(data)) as server:
        yield server


# ── The load ─────────────────────────────────────────────────────────────────────────────────


def code_of(reply: Reply) -> str:
    code: str = json.loads(reply.body)["error"]["code"]
    return code


class Worker:
    """Someone with a stream of their own, who does one thing at a time until told to end."""

    def __init__(self, name: str, port: int) -> None:
        self.path = f"load/{name}"
        self.done = 0
        self.unknown = 0
        self.refused = 0
        self.is_over = False
        self._wire = Wire(port)

    async def run(self) -> None:
        try:
            await self.prepare()
            while not self.is_over:
                await self.step()
        except Lost:
            pass
        finally:
            await self._wire.close()

    async def prepare(self) -> None:
        await self.create(self.path)

    async def create(self, path: str, settings: object = None) -> None:
        reply = await self.request("PUT", path, settings)
        assert reply is not None
        assert reply.status in (200, 201)

    async def step(self) -> None:
        raise NotImplementedError

    async def check(self, wire: Wire) -> None:
        raise NotImplementedError

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Reply | None:
        """None if nobody knows whether it was done."""
        content = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self._wire.request(method, path, JSON | (headers or {}), content)
        except Lost as lost:
            if not lost.begun:
                raise
            self.unknown += 1
            return None
        if reply.status == 503:
            assert code_of(reply) == "storage_unavailable"
            self.refused += 1
        return reply

    async def stored(self, wire: Wire) -> list[int]:
        content, _, _ = await read_all(wire, self.path, Kind.JSON, "-1")
        found: list[int] = json.loads(b"[%b]" % content.removesuffix(b","))
        return found


class Writer(Worker):
    """Appends numbers, two at a time, without any protection against repetition."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self._number = 0
        self._acked: list[int] = []
        self._perhaps: set[int] = set()

    async def step(self) -> None:
        number, self._number = self._number, self._number + 1
        self._perhaps.add(number)
        reply = await self.request("POST", self.path, self.content(number))
        if reply is not None:
            self._perhaps.remove(number)
            if reply.status != 503:
                assert reply.status == 204
                self._acked.append(number)
                self.done += 1

    def content(self, number: int) -> list[object]:
        return [number, -number]

    async def check(self, wire: Wire) -> None:
        found = await self.stored(wire)
        numbers = found[::2]
        assert found == [part for number in numbers for part in (number, -number)]
        assert [number for number in numbers if number not in self._perhaps] == self._acked
        assert numbers == sorted(set(numbers))


class LargeWriter(Writer):
    """Appends numbers with so much beside them that they go into files, now and then."""

    _BESIDE = "x" * LARGE_BYTES

    async def step(self) -> None:
        await asyncio.sleep(0.05)
        await super().step()

    def content(self, number: int) -> list[object]:
        return [*super().content(number), self._BESIDE]

    async def stored(self, wire: Wire) -> list[int]:
        found: list[object] = [*await super().stored(wire)]
        assert all(one == self._BESIDE for one in found[2::3])
        return [one for one in found if isinstance(one, int)]


class Producer(Worker):
    """Appends numbers as an idempotent producer, each as often as it takes."""

    async def step(self) -> None:
        stamp = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(self.done)}
        reply = await self.request("POST", self.path, self.done, stamp)
        if reply is not None and reply.status != 503:
            assert reply.status in (200, 204)
            self.done += 1

    async def check(self, wire: Wire) -> None:
        found = await self.stored(wire)
        # One more may have been under way.
        assert found in ([*range(self.done)], [*range(self.done + 1)])


class GroupWorker(Worker):
    """Puts numbers into a stream and takes them out again with a group."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self._settled: set[int] = set()
        self._sent = 0

    async def prepare(self) -> None:
        await super().prepare()
        await self.create(f"{self.path}/{GROUP}", {"ack_timeout_ms": 3_600_000})

    async def step(self) -> None:
        await self.request("POST", self.path, self._sent)
        self._sent += 1
        taken = await self._ask("fetch", consumer="c", max=10, wait_ms=0)
        for message in taken["messages"] if taken else ():
            assert message["value"] not in self._settled, "acknowledged, and delivered again"
            answer = await self._ask("ack", receipts=[message["receipt"]])
            if answer is not None and not answer["stale"]:
                self._settled.add(message["value"])
                self.done += 1

    async def _ask(self, action: str, **body: object) -> Any:
        reply = await self.request("POST", f"{self.path}/{GROUP}/{action}", body)
        if reply is None or reply.status == 503:
            return None
        assert reply.status == 200
        return json.loads(reply.body)

    async def check(self, wire: Wire) -> None:
        """What was acknowledged is not in the hands of anybody, and is not delivered again."""
        while True:
            query = json.dumps({"consumer": "c", "max": 1_000, "wait_ms": 0}).encode()
            reply = await wire.request("POST", f"{self.path}/{GROUP}/fetch", JSON, query)
            messages = json.loads(reply.body)["messages"]
            assert not self._settled & {message["value"] for message in messages}
            if not messages:
                return


class Load:
    def __init__(self, port: int, of_each: int = 6) -> None:
        self.port = port
        self.workers: list[Worker] = [
            kind(f"{kind.__name__}-{number}", port)
            for kind in (Writer, Producer, GroupWorker)
            for number in range(of_each)
        ]
        self.workers += [LargeWriter(f"LargeWriter-{number}", port) for number in range(2)]

    @property
    def done(self) -> int:
        return sum(worker.done for worker in self.workers)

    @property
    def unknown(self) -> int:
        return sum(worker.unknown for worker in self.workers)

    @property
    def refused(self) -> int:
        return sum(worker.refused for worker in self.workers)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Everyone works until the end of this, or of the server."""
        async with asyncio.TaskGroup() as tasks:
            for worker in self.workers:
                tasks.create_task(worker.run())
            yield
            for worker in self.workers:
                worker.is_over = True

    async def until_more(self, more: int = 300) -> None:
        done = self.done
        await until(lambda: self.done >= done + more)

    async def until_all_are_at_work(self) -> None:
        await until(lambda: all(worker.done > 0 for worker in self.workers))

    async def check(self) -> None:
        wire = Wire(self.port)
        try:
            for worker in self.workers:
                await worker.check(wire)
        finally:
            await wire.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.01)


async def until_used(server: ServerProcess, load: Load, than: int = 0) -> int:
    """Wait until the committer (another one than that) has committed; returns its process."""
    committer = await asyncio.to_thread(committer_of, server.pid, than)
    before = bytes_written(committer)
    await until(lambda: bytes_written(committer) > before + 100_000)
    return committer


async def check_over_a_crash(load: Load, server: ServerProcess, data: Path) -> None:
    """What is there now is there for good."""
    await load.check()
    server.kill()
    check_directory(data)
    server.start()
    await load.check()


# ── Nothing happens to it ────────────────────────────────────────────────────────────────────


async def test_most_of_the_work_is_done_there(server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        before = [bytes_written(process) for process in (committer, server.pid)]
        await load.until_more(1_000)
        after = [bytes_written(process) for process in (committer, server.pid)]
        assert committers(server.pid) == [committer]
    there, here = (late - early for early, late in zip(before, after, strict=True))
    # Every append is at least a page in the log.
    assert there > here
    assert (load.unknown, load.refused) == (0, 0)
    await check_over_a_crash(load, server, data)


async def test_there_is_none_if_it_is_not_wanted(start_server: StartServer, data: Path) -> None:
    server = start_server("--data", str(data), env=SINGLE)
    load = Load(server.port)
    async with load.at_work():
        await load.until_more()
        assert committers(server.pid) == []
    await check_over_a_crash(load, server, data)


# ── Its end ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_it_is_killed_under_load(server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    killed = 0
    async with load.at_work():
        await load.until_all_are_at_work()
        for _ in range(2):
            committer = await until_used(server, load, than=killed)
            os.kill(committer, signal.SIGKILL)
            killed = committer
            # The thread does it meanwhile.
            await load.until_more(50)
            assert not is_committer(killed)
        await until_used(server, load, than=killed)
    # Answers are missing only in the batch that it was at work on, and in what waited for that.
    assert load.unknown + load.refused <= 4 * len(load.workers)
    await check_over_a_crash(load, server, data)
    assert server.stderr.count("committer_failed") == 2


async def test_it_is_killed_with_a_batch_in_its_hands(server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        await until_it_stands_still(committer, load)
        os.kill(committer, signal.SIGKILL)
        await until(lambda: load.unknown > 0)
        await load.until_more(50)
    await check_over_a_crash(load, server, data)


@pytest.mark.parametrize("first", ["server", "committer"])
async def test_both_are_killed(first: str, server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        await load.until_more()
        both = [server.pid, committer]
        for process in both if first == "server" else reversed(both):
            os.kill(process, signal.SIGKILL)
        server.kill()
    wait_until(lambda: not is_locked(data), "somebody is still at work")
    check_directory(data)
    server.start()
    await check_over_a_crash(load, server, data)


@pytest.mark.slow
async def test_the_power_fails(data: Path, tmp_path: Path, seed: int) -> None:
    """Appends only: no sync of the server hides what the committer has not synced."""
    rng = Random(seed)
    server = PoweredServer(data, tmp_path / "unsynced", rng, "--data", str(data))
    server.start()
    try:
        for _ in range(3):
            load = Load(server.port)
            load.workers = [Writer(f"{rng.random()}", server.port) for _ in range(12)]
            load.workers += [LargeWriter(f"{rng.random()}", server.port) for _ in range(2)]
            async with load.at_work():
                await load.until_all_are_at_work()
                await until_used(server, load)
                await load.until_more(rng.randrange(50, 300))
                assert load.unknown + load.refused == 0
                server.kill()
            check_directory(data)
            server.start()
            await load.check()
        assert server.stop() == 0
    finally:
        if server.is_running:
            server.kill()


# ── Signals ──────────────────────────────────────────────────────────────────────────────────


async def until_it_stands_still(committer: int, load: Load) -> None:
    """Stop it, until everyone waits for it."""
    os.kill(committer, signal.SIGSTOP)
    done = -1
    async with asyncio.timeout(60):
        while load.done != done:
            done = load.done
            await asyncio.sleep(0.5)


async def test_it_is_stopped_for_a_while(server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    wire = Wire(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        await until_it_stands_still(committer, load)
        done = load.done
        # Whoever only reads does not wait for it.
        assert (await wire.request("GET", load.workers[0].path, query="offset=-1")).status == 200
        await asyncio.sleep(1)
        assert load.done == done
        os.kill(committer, signal.SIGCONT)
        await load.until_more()
        assert committers(server.pid) == [committer]
    await wire.close()
    assert (load.unknown, load.refused) == (0, 0)
    await check_over_a_crash(load, server, data)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_does_not_end_before_its_server(
    number: signal.Signals, server: ServerProcess, data: Path
) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        os.kill(committer, number)
        await load.until_more()
        assert await until_used(server, load) == committer
    assert (load.unknown, load.refused) == (0, 0)
    await check_over_a_crash(load, server, data)


# ── The end of the server ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stands_still", [False, True])
async def test_its_server_is_killed(stands_still: bool, server: ServerProcess, data: Path) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        committer = await until_used(server, load)
        if stands_still:
            os.kill(committer, signal.SIGSTOP)
        server.kill()
    if stands_still:
        assert is_locked(data), "it may be in the middle of a commit"
        Timer(1, os.kill, (committer, signal.SIGCONT)).start()
    server.start()
    assert not is_committer(committer)
    await check_over_a_crash(load, server, data)
    assert "Traceback" not in server.stderr


def assert_nothing_is_left(data: Path) -> None:
    assert committers_in(data) == []
    assert not is_locked(data)
    assert not list(data.glob("*-wal"))


async def test_nothing_is_left_of_a_server_that_was_told_to_stop(
    server: ServerProcess, data: Path
) -> None:
    load = Load(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        await until_used(server, load)
        assert await asyncio.to_thread(server.stop) == 0
        assert_nothing_is_left(data)
    assert "Traceback" not in server.stderr
    check_directory(data)
    server.start()
    await load.check()


def test_nothing_is_left_of_a_server_that_is_stopped_as_soon_as_it_runs(data: Path) -> None:
    server = ServerProcess("--data", str(data))
    for _ in range(3):
        server.start()
        assert server.stop() == 0
        assert_nothing_is_left(data)
    assert "Traceback" not in server.stderr


# ── Bad disks ────────────────────────────────────────────────────────────────────────────────


async def answers(server: ServerProcess, disk: Disk, fault: Fault) -> list[tuple[int, str]]:
    """What a client is told during a fault and after it."""
    load = Load(server.port, of_each=1)
    # With the second one, nobody is alone.
    wire, other = Wire(server.port), Wire(server.port)
    async with load.at_work():
        await load.until_all_are_at_work()
        if server.env.get("HEADWATER_COMMIT_PROCESS") != "false":
            await until_used(server, load)
    for path in ("s", "closing", f"s/{GROUP}"):
        assert (await other.request("PUT", path, JSON)).status == 201
    assert (await wire.request("POST", "s", JSON, b"[0]")).status == 204
    taken = await wire.request("POST", f"s/{GROUP}/fetch", JSON, b'{"consumer":"c"}')
    (receipt,) = [message["receipt"] for message in json.loads(taken.body)["messages"]]
    # Nobody waits for the commit of a delivery, so wait for one that follows.
    assert (await wire.request("POST", "closing", JSON, b"[0]")).status == 204
    stamp = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    found: list[tuple[int, str]] = []
    disk.fail(fault)
    for _ in range(2):
        for path, headers, body in (
            ("s", JSON, b"[1]"),
            ("s", JSON | stamp, b"[2]"),
            (f"s/{GROUP}/ack", JSON, json.dumps({"receipts": [receipt]}).encode()),
            ("closing", {"Stream-Closed": "true"}, b""),
        ):
            reply = await wire.request("POST", path, headers, body)
            found.append((reply.status, code_of(reply) if reply.status >= 400 else ""))
        disk.recover()
    await wire.close()
    await other.close()
    await load.check()
    return found


@pytest.mark.parametrize("fault", WRITE_FAULTS)
async def test_answers_are_the_same_as_without_it(fault: Fault, tmp_path: Path) -> None:
    found: list[list[tuple[int, str]]] = []
    for name, extra in (("with", {}), ("without", SINGLE)):
        disk = Disk(tmp_path / f"fault-{name}")
        directory = tmp_path / name
        environment = disk.environment | extra
        with ServerProcess("--data", str(directory), env=environment) as server:
            found.append(await answers(server, disk, fault))
        check_directory(directory)
    assert found[0] == found[1]
    assert [status for status, _ in found[0]] == [503] * 4 + [204, 200, 200, 204]


@pytest.mark.parametrize("extra", [{}, SINGLE], ids=["with", "without"])
async def test_a_commit_that_cannot_be_taken_back_is_not_said_to_be_refused(
    extra: dict[str, str], data: Path, tmp_path: Path
) -> None:
    """Its sync fails, then the write that should overwrite it, and then the server is killed."""
    disk = Disk(tmp_path / "fault")
    with ServerProcess("--data", str(data), env=disk.environment | extra) as server:
        load = Load(server.port)
        async with load.at_work():
            await load.until_all_are_at_work()
            if not extra:
                await until_used(server, load)
            disk.fail(Fault.DIES)
            await until(lambda: load.unknown and load.refused)
            server.kill()
        disk.recover()
        check_directory(data)
        server.start()
        await load.check()
