"""What one caller, and all of them together, may ask of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

from headwater.core.errors import BuffersFull, RateExceeded, TooManyReadersOfCaller
from headwater.core.limits import Limits
from headwater.http.access import accounts as accounts_module
from headwater.http.access.accounts import Accounts
from headwater.http.messages import Answer, EventStream, Payload, Request, Response, Sink
from headwater.http.wire import server as server_module
from headwater.http.wire.reader_budget import ReaderBudget
from headwater.http.wire.server import Server
from tests.access.guests import Guest, House, refusal
from tests.http.client import Client, eventually
from tests.http.wire import PATIENCE_S, Wire, request_bytes
from tests.support.server import HOST, ServerProcess

# ── Rates ────────────────────────────────────────────────────────────────────────────────────


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(accounts_module, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_caller_is_told_exactly_how_long_to_wait(clock: Clock) -> None:
    accounts = Accounts(Limits(requests_per_s_max=2, bytes_per_s_max=1000))
    accounts.charge_request("a", 0)
    accounts.charge_request("a", 4500)
    with pytest.raises(RateExceeded) as refused:
        accounts.charge_request("a", 0)
    # 3,500 bytes overdrawn at 1,000 a second, and the next one needs one more.
    assert refused.value.retry_after_s == 4
    accounts.charge_request("b", 0)
    clock.now += 3.5
    with pytest.raises(RateExceeded) as refused:
        accounts.charge_request("a", 0)
    assert refused.value.retry_after_s == 1
    clock.now += 0.01
    accounts.charge_request("a", 0)
    assert accounts.refusals == 2


def test_answers_count(clock: Clock) -> None:
    accounts = Accounts(Limits(bytes_per_s_max=1000))
    accounts.charge_request("a", 0)
    accounts.charge_bytes("a", 3000)
    with pytest.raises(RateExceeded) as refused:
        accounts.charge_request("a", 0)
    assert refused.value.retry_after_s == 3


def test_there_are_not_more_accounts_than_fit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts_module, "ACCOUNTS_MAX", 100)
    accounts = Accounts(Limits(requests_per_s_max=1))
    accounts.charge_request("busy", 0)
    for number in range(50):
        accounts.charge_request(f"first {number}", 0)
    clock.now += 1
    accounts.charge_request("busy", 0)
    for number in range(1000):
        accounts.charge_request(f"then {number}", 0)
        assert len(accounts) <= 100


@pytest.fixture(scope="module")
def strict_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    limits = ("--requests-per-s-max", "3", "--readers-per-caller-max", "2")
    with House.open(tmp_path_factory.mktemp("strict"), "memory", *limits) as house:
        yield house


def guest_named(house: House, name: str) -> Guest:
    return Guest(house.server.port, house.token(sub=name, headwater={"admin": ["**"]}))


def test_rates_by_token(strict_house: House) -> None:
    busy, other = guest_named(strict_house, "busy"), guest_named(strict_house, "other")
    # A slow machine needs more than a few of them to be too fast.
    replies = (busy.send("GET", "/v1/streams") for _ in range(500))
    refused = [*islice((reply for reply in replies if reply.status == 429), 10)]
    assert len(refused) == 10
    assert {refusal(reply) for reply in refused} == {(429, "rate_exceeded")}
    assert {reply.headers["Retry-After"] for reply in refused} == {"1"}
    assert other.send("GET", "/v1/streams").status == 200
    assert busy.send("GET", "/healthz").status == 200
    assert busy.send("OPTIONS", "/v1/streams").status == 204


def test_guesses_are_slowed_down(strict_house: House) -> None:
    guesses = [
        Guest(strict_house.server.port, f"hw_{n:012x}_{'x' * 43}").send("GET", "/v1/streams")
        for n in range(20)
    ]
    statuses = [reply.status for reply in guesses]
    assert statuses[0] == 401
    assert statuses.count(429) >= 10
    # Callers with a key are not held up by others who guess from the same address.
    assert guest_named(strict_house, "honest").send("GET", "/v1/streams").status == 200


def test_rates_by_address_where_nobody_has_a_name() -> None:
    with ServerProcess("--memory", "--bytes-per-s-max", "1000") as server:
        client = Client(server)
        path = client.create({"Content-Type": "text/plain"})
        assert client.post(path, b"x" * 5000, {"Content-Type": "text/plain"}).status == 204
        reply = client.get(path)
        assert refusal(reply) == (429, "rate_exceeded")
        assert 3 <= int(reply.headers["Retry-After"]) <= 5


# ── Live reads ───────────────────────────────────────────────────────────────────────────────


def test_live_reads_of_one_caller(tmp_path: Path) -> None:
    with House.open(tmp_path, "memory", "--readers-per-caller-max", "2") as house:
        owner = house.owner
        owner.put("a")
        owner.json("PUT", "/v1/stream/a/_groups/g", {})
        other = guest_named(house, "other")
        with ExitStack() as stack:
            sse = stack.enter_context(owner.open("/v1/stream/a?offset=now&live=sse"))
            assert sse.head().status == 200
            push = stack.enter_context(owner.open("/v1/stream/a/_groups/g?live=sse&consumer=c"))
            assert push.head().status == 200
            for reply in (
                owner.get("a", "offset=now&live=sse"),
                owner.get("a", "offset=now&live=long-poll"),
                owner.get("a/_groups/g", "live=sse&consumer=c"),
                owner.json("POST", "/v1/stream/a/_groups/g/fetch", {"consumer": "d", "wait_ms": 9}),
            ):
                assert refusal(reply) == (429, "too_many_readers_of_caller")
            # Reading without waiting is no live read.
            assert owner.get("a").status == 200
            with other.open("/v1/stream/a?offset=now&live=sse") as theirs:
                assert theirs.head().status == 200
        fetch = {"consumer": "d", "wait_ms": 1}
        eventually(lambda: owner.json("POST", "/v1/stream/a/_groups/g/fetch", fetch).status == 200)


def test_waiting_ends_and_makes_room(tmp_path: Path) -> None:
    """Over and over, however it ends: answered, timed out, hung up."""
    limits = ("--readers-per-caller-max", "1", "--long-poll-timeout-ms", "50")
    with House.open(tmp_path, "memory", *limits) as house:
        owner = house.owner
        owner.put("a")
        for _ in range(3):
            assert owner.get("a", "offset=now&live=long-poll").status == 204
        for _ in range(3):
            with owner.open("/v1/stream/a?offset=now&live=sse"):
                pass
            eventually(lambda: owner.get("a", "offset=now&live=long-poll").status == 204)
        for _ in range(3):
            with owner.open("/v1/stream/a?offset=now&live=long-poll"):
                pass
            eventually(lambda: owner.get("a", "offset=now&live=long-poll").status == 204)
        details = json.loads(owner.get("a/_details").body)
        assert details["readers"] == 0


def test_a_read_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    with House.open(tmp_path, "memory", "--readers-per-caller-max", "1") as house:
        owner = house.owner
        owner.put("a")
        owner.put("b")
        with owner.open("/v1/stream/a?offset=now&live=sse") as wire:
            assert wire.head().status == 200
            for live in ("sse", "long-poll"):
                assert owner.get("b", f"offset=now&live={live}").status == 429
            assert json.loads(owner.get("b/_details").body)["readers"] == 0
            assert owner.send("DELETE", "/v1/stream/b").status == 204


def test_the_room_adds_up() -> None:
    room = ReaderBudget(Limits(readers_per_caller_max=2))
    room.enter("a", "a")
    room.enter("a", "a")
    room.enter("b", "b")
    with pytest.raises(TooManyReadersOfCaller):
        room.enter("a", "a")
    assert (room.live, room.refusals) == (3, 1)
    for holder in ("a", "a", "b"):
        room.leave(holder)
    assert room.live == 0
    room.enter("a", "a")
    room.enter("a", "a")


# ── Buffers ──────────────────────────────────────────────────────────────────────────────────

KIB = 1024
SMALL = Limits(buffers_bytes_max=4096 * KIB, reader_buffer_bytes_max=4096 * KIB)


class Fountain:
    """Sends events, as many as the test likes, or one large answer."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.stopped = 0

    def __call__(self, request: Request) -> Answer:
        if request.path == b"/large":
            return Response(200, [], b"x" * 30_000 * KIB)
        if request.path == b"/events":
            return EventStream([], self.sinks.append, self._stop)
        return Response(200, [], b"ok")

    def _stop(self) -> None:
        self.stopped += 1


class Spring:
    def __init__(self, server: Server, fountain: Fountain, port: int) -> None:
        self.server, self.fountain, self.port = server, fountain, port

    async def ask(self, target: str, method: str = "GET") -> bytes:
        """The status line of an answer."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        writer.write(request_bytes(method, target))
        async with asyncio.timeout(PATIENCE_S):
            line = await reader.readline()
        writer.close()
        return line

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - counters tell nobody when they change
                await asyncio.sleep(0.01)


@pytest.fixture
async def spring() -> AsyncIterator[Spring]:
    fountain = Fountain()
    server = Server(fountain, SMALL)
    port = await server.start(HOST, 0)
    yield Spring(server, fountain, port)
    await server.stop(0)
    assert server.readers.live == 0
    assert server.readers.buffered_bytes == 0


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut off for reading nothing, however long the test takes over what it asks."""
    monkeypatch.setattr(server_module, "_SWEEP_S", 3600.0)


@pytest.mark.usefixtures("no_sweeps")
async def test_nobody_is_let_in_while_too_much_is_unread(spring: Spring) -> None:
    room = spring.server.readers
    reader, writer = await asyncio.open_connection(HOST, spring.port)
    writer.write(request_bytes("GET", "/large"))
    await spring.until(lambda: room.is_full)
    assert room.buffered_bytes > SMALL.buffers_bytes_max
    for target in ("/events", "/ok"):
        assert b" 503 " in await spring.ask(target)
    assert b" 200 " in await spring.ask("/ok", "POST")
    # Reading what is there makes room for others.
    async with asyncio.timeout(PATIENCE_S):
        await reader.readexactly(30_000 * KIB)
    room.measure()
    assert not room.is_full
    assert b" 200 " in await spring.ask("/events")
    writer.close()


async def test_slow_readers_go_first(spring: Spring) -> None:
    """With too much unread in all, one who has not read is cut off; one who has is not."""
    room, fountain = spring.server.readers, spring.fountain
    slow, slow_writer = await asyncio.open_connection(HOST, spring.port, limit=KIB)
    slow_writer.write(request_bytes("GET", "/events"))
    await spring.until(lambda: len(fountain.sinks) == 1)
    for _ in range(6):
        fountain.sinks[0].send(Payload(b"x" * 2000 * KIB))
        await asyncio.sleep(0)
    await spring.until(lambda: fountain.stopped == 1)
    assert room.cut_off == 1
    await spring.until(lambda: not room.is_full)
    assert slow is not None
    slow_writer.close()


def test_full_buffers_refuse() -> None:
    room = ReaderBudget(SMALL)

    class Stuck:
        address = "a"

        def measure(self) -> None:
            room.measured(self, 0)

        def abort(self) -> None:
            raise AssertionError("it has read meanwhile")

    stuck = Stuck()
    room.measured(stuck, SMALL.buffers_bytes_max + 1)
    with pytest.raises(BuffersFull):
        room.enter("a", "a")
    room.measured(stuck, 5)
    room.enter("a", "a")
    assert room.buffered_bytes == 5
    room.measure()
    assert room.buffered_bytes == 0


def test_event_streams_are_no_way_around_the_share_of_an_address() -> None:
    room = ReaderBudget(SMALL)

    class Deaf:
        address = "deaf"

        def measure(self) -> None: ...

        def abort(self) -> None: ...

    room.measured(Deaf(), SMALL.buffers_bytes_max // 2 + 1)
    assert room.is_too_much("deaf", 1)
    with pytest.raises(BuffersFull):
        room.enter("key", "deaf")
    assert not room.is_too_much("reader", 1)
    room.enter("key", "reader")


def test_whoever_keeps_nothing_waiting_pays_for_no_answer_of_others() -> None:
    room = ReaderBudget(SMALL)

    class Busy:
        address = "busy"

        def measure(self) -> None: ...

        def abort(self) -> None: ...

    room.measured(Busy(), SMALL.buffers_bytes_max + 1)
    assert room.is_full
    room.check("reader")
    room.enter("key", "reader")
    with pytest.raises(BuffersFull):
        room.check("busy")
    room.measured(Busy(), SMALL.buffers_bytes_max)
    with pytest.raises(BuffersFull):
        room.check("reader")


# ── Heads and connections ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def narrow_server() -> Iterator[ServerProcess]:
    limits = ("--header-count-max", "10", "--connections-per-address-max", "3")
    with ServerProcess("--memory", *limits) as server:
        yield server


def test_the_number_of_headers(narrow_server: ServerProcess) -> None:
    with Wire(narrow_server.port) as wire:
        # Host is one as well.
        fine = {f"X-{number}": "y" for number in range(9)}
        assert wire.request("GET", "/healthz", fine).status == 200
        reply = wire.request("GET", "/healthz", fine | {"X-9": "y"})
        assert refusal(reply) == (431, "too_many_headers")
        assert wire.is_at_end()


def test_connections_from_one_address(narrow_server: ServerProcess) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(narrow_server.port)) for _ in range(3)]
        for wire in wires:
            assert wire.request("GET", "/healthz").status == 200
        with Wire(narrow_server.port) as fourth:
            assert refusal(fourth.reply()) == (503, "too_many_connections")
        wires[0].close()

        def is_let_in() -> bool:
            with Wire(narrow_server.port) as wire:
                wire.send_if_open(request_bytes("GET", "/healthz"))
                return wire.reply().status == 200

        eventually(is_let_in)
