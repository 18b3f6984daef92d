"""Live queries against a real server: nothing missed, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncLiveQuery,
    AsyncLiveStream,
    AsyncStream,
    BadRequest,
    Conflict,
    Encoded,
    Headwater,
    LiveMeta,
    LiveNotEnabled,
    ProducerOptions,
    RetryPolicy,
    StateProtocol,
    StreamNotFound,
    Template,
    Timeouts,
    TouchSettings,
    keyset,
)
from headwater.client.aio.transport import HttpxTransport
from headwater.client.protocol.streams import Request, Response
from tests.client.faulty_proxy import FaultyProxy
from tests.conftest import StartServer
from tests.support import seeds

ENABLED = StateProtocol(TouchSettings(enabled=True))
RESTLESS = RetryPolicy(base_delay_s=0.005, max_delay_s=0.05, give_up_after_s=None)
# Far more than a healthy run takes: it only turns a hang into a failure.
HANG_S = 60.0


@pytest.fixture
async def live_stream(json_stream: AsyncStream) -> AsyncStream:
    await json_stream.live().set_profile(ENABLED)
    return json_stream


@pytest.fixture
async def async_stream(base_url: str, new_path: str) -> AsyncIterator[AsyncStream]:
    """For tests that cancel: a thread of the blocking client cannot be cancelled from outside."""
    async with AsyncHeadwater(base_url) as client:
        stream = client.stream(new_path)
        await stream.create(content_type="application/json")
        await stream.live().set_profile(ENABLED)
        yield stream


def record(operation: str, key: int, **rows: Any) -> dict[str, Any]:
    return {"type": "todos", "key": str(key), "headers": {"operation": operation}, **rows}


class Table:
    """A database of one table, and the log of its changes."""

    def __init__(self, stream: AsyncStream, *, with_before: bool = True) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._stream = stream
        self._with_before = with_before

    async def put(self, key: int, **fields: Any) -> None:
        before = self.rows.get(key)
        row = {"id": key, **fields}
        self.rows[key] = row
        if before is None:
            await self._stream.append(record("insert", key, value=row))
        else:
            old = {"old_value": before} if self._with_before else {}
            await self._stream.append(record("update", key, value=row, **old))

    async def drop(self, key: int) -> None:
        before = self.rows.pop(key)
        old = {"old_value": before} if self._with_before else {}
        await self._stream.append(record("delete", key, **old))

    def of(self, **where: Any) -> list[dict[str, Any]]:
        rows = self.rows.values()
        return [dict(row) for row in rows if where.items() <= row.items()]


async def result_of(query: AsyncLiveQuery[Any]) -> Any:
    """The next result. A change that was missed fails the test instead of stopping it."""
    async with asyncio.timeout(HANG_S):
        return await anext(query)


async def until(live: AsyncLiveStream, condition: Callable[[LiveMeta], bool]) -> None:
    """Ask the server until something is so. Each question takes its time, so nothing is added."""
    async with asyncio.timeout(HANG_S):
        while not condition(await live.meta()):
            pass


async def waiters(live: AsyncLiveStream, count: int) -> None:
    await until(live, lambda meta: meta.active_waiters == count)


# ── Single requests ──────────────────────────────────────────────────────────────────────────


async def test_profiles(json_stream: AsyncStream) -> None:
    live = json_stream.live()
    assert (await live.profile()).__class__.__name__ == "Generic"
    assert await live.set_profile(ENABLED) == ENABLED
    assert await live.profile() == ENABLED
    wire = {"kind": "state-protocol", "touch": {"enabled": True, "memory": {"bucketMs": 7}}}
    changed = await live.set_profile(wire)
    assert isinstance(changed, StateProtocol)
    assert changed.touch.memory.bucket_ms == 7
    with pytest.raises(BadRequest):
        await live.set_profile({"kind": "state-protocol", "colour": "red"})


async def test_a_profile_that_does_not_fit(text_stream: AsyncStream) -> None:
    with pytest.raises(Conflict):
        await text_stream.live().set_profile(ENABLED)


async def test_a_settled_cursor_is_behind_everything_appended(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    before = await live.meta(settle=True)
    await live_stream.append(record("insert", 1, value={"id": 1}))
    after = await live.meta(settle=True)
    assert after.settled
    assert after.bucket_max_source_offset_seq == "1"
    assert (after.epoch, after.generation) == (before.epoch, before.generation + 1)
    keys = keyset("todos").keys
    assert (await live.wait(keys, cursor=before.cursor, coarse=True)).touched
    assert not (await live.wait(keys, cursor=after.cursor, coarse=True, timeout_s=0)).touched


async def test_activation(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    good = Template("todos", {"tenant": "string"})
    outcome = await live.activate([good, Template("", {"a": "string"})], ttl_s=60)
    assert outcome.covers(good)
    assert [(denied.index, denied.reason) for denied in outcome.denied] == [(1, "invalid")]
    assert outcome.limits.max_active_templates_per_entity == 256
    conflict = await live.activate([Template("todos", {"tenant": "int64"})])
    assert [denied.reason for denied in conflict.denied] == ["encoding_conflict"]
    assert (await live.meta()).active_templates == 1


async def test_waits(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    found = keyset("todos", {"tenant": "t1"})
    assert found.template is not None
    quiet = await live.wait(
        found.keys,
        timeout_s=0,
        templates_used=[found.template.id],
        declare=[found.template],
        exact=True,
    )
    assert (quiet.touched, quiet.stale, quiet.effective_wait_kind) == (False, False, "fineKey")
    await live_stream.append(record("insert", 1, value={"id": 1, "tenant": "t1"}))
    woken = await live.wait(found.keys, cursor=quiet.cursor)
    assert woken.touched
    ids = [int(key, 16) & 0xFFFF_FFFF for key in found.keys]
    assert (await live.wait(key_ids=ids, cursor=quiet.cursor)).touched
    stale = await live.wait(found.keys, cursor="0123456789abcdef:0")
    assert (stale.touched, stale.stale) == (False, True)
    with pytest.raises(ValueError, match="between 0 and 120"):
        await live.wait(found.keys, timeout_s=121)


async def test_where_queries_cannot_wait(json_stream: AsyncStream) -> None:
    live = json_stream.live()
    for request in (live.meta(), live.wait(["0" * 16]), live.activate([])):
        with pytest.raises(LiveNotEnabled):
            await request
    with pytest.raises(LiveNotEnabled):
        await result_of(live.query(lambda: 1, entity="todos"))


async def test_where_there_is_no_stream(stream: AsyncStream) -> None:
    with pytest.raises(StreamNotFound):
        await result_of(stream.live().query(lambda: 1, entity="todos"))


# ── Queries ──────────────────────────────────────────────────────────────────────────────────


async def test_a_query_follows_its_rows(live_stream: AsyncStream) -> None:
    table = Table(live_stream)
    query = live_stream.live().query(
        lambda: table.of(tenant="t1"), entity="todos", where={"tenant": "t1"}
    )
    assert await result_of(query) == []
    await table.put(1, tenant="t1", title="milk")
    assert await result_of(query) == [{"id": 1, "tenant": "t1", "title": "milk"}]
    await table.put(1, tenant="t1", title="bread")
    assert await result_of(query) == [{"id": 1, "tenant": "t1", "title": "bread"}]
    await table.put(1, tenant="t2", title="bread")
    assert await result_of(query) == []
    await table.put(1, tenant="t1", title="bread")
    assert len(await result_of(query)) == 1
    await table.drop(1)
    assert await result_of(query) == []
    await query.aclose()
    with pytest.raises(StopAsyncIteration):
        await result_of(query)


SHAPES: list[tuple[dict[str, Any], list[bool]]] = [
    # Runs again for: another tenant's row, a title, a note, a row that comes.
    ({}, [True, True, True, True]),
    ({"where": {"tenant": "t1"}}, [False, True, True, True]),
    ({"where": {"tenant": "t1"}, "project": ["title"]}, [False, True, False, True]),
    ({"where": {"tenant": "t1"}, "membership_only": True}, [False, False, False, True]),
]


@pytest.mark.parametrize("shape, expected", SHAPES)
async def test_a_query_runs_for_what_its_shape_depends_on(
    async_stream: AsyncStream, shape: dict[str, Any], expected: list[bool]
) -> None:
    table, live = Table(async_stream), async_stream.live()
    runs = 0

    def run() -> int:
        nonlocal runs
        runs += 1
        return runs

    await table.put(1, tenant="t1", title="a", note="x")
    query = live.query(run, entity="todos", where=shape.get("where"), **shape_of(shape))
    # A change may still be on its way to the journal, so begin from a quiet moment.
    await live.meta(settle=True)
    seen = await result_of(query)
    changes: list[Callable[[], Awaitable[None]]] = [
        lambda: table.put(2, tenant="t2", title="a", note="x"),
        lambda: table.put(1, tenant="t1", title="b", note="x"),
        lambda: table.put(1, tenant="t1", title="b", note="y"),
        lambda: table.put(3, tenant="t1", title="b", note="y"),
    ]
    for change, wakes in zip(changes, expected, strict=True):
        await change()
        await live.meta(settle=True)
        cursor = (await live.meta()).cursor
        if wakes:
            assert await result_of(query) == seen + 1
            seen += 1
        else:
            waiting = asyncio.create_task(result_of(query))
            await waiters(live, 1)
            assert (await live.meta()).cursor == cursor
            await query_cancelled(waiting)
            await waiters(live, 0)


def shape_of(shape: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if name != "where"}


async def query_cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_what_changes_while_the_query_runs_is_not_missed(live_stream: AsyncStream) -> None:
    table = Table(live_stream)
    loop = asyncio.get_running_loop()

    def run() -> list[dict[str, Any]]:
        found = table.of(tenant="t1")
        if not found:
            # Too late for this result, and the record is there before the wait begins.
            asyncio.run_coroutine_threadsafe(table.put(1, tenant="t1"), loop).result()
        return found

    async def run_elsewhere() -> list[dict[str, Any]]:
        return await asyncio.to_thread(run)

    live = live_stream.live()
    threaded = type(live).__name__ == "Threaded"
    query = live.query(run if threaded else run_elsewhere, entity="todos", where={"tenant": "t1"})
    async with asyncio.timeout(HANG_S):
        assert await result_of(query) == []
        assert await result_of(query) == [{"id": 1, "tenant": "t1"}]


async def test_a_query_that_fails_is_run_again(live_stream: AsyncStream) -> None:
    failures = [RuntimeError("the database is away")]

    def run() -> str:
        if failures:
            raise failures.pop()
        return "fine"

    query = live_stream.live().query(run, entity="todos", where={"tenant": "t1"})
    with pytest.raises(RuntimeError, match="away"):
        await result_of(query)
    assert await result_of(query) == "fine"


async def test_changes_without_before_images(live_stream: AsyncStream) -> None:
    table = Table(live_stream, with_before=False)
    query = live_stream.live().query(
        lambda: table.of(tenant="t1"), entity="todos", where={"tenant": "t1"}, project=["title"]
    )
    await table.put(1, tenant="t1", title="a")
    while len(await result_of(query)) != 1:
        pass
    await table.put(1, tenant="t2", title="a")
    assert await result_of(query) == []


async def test_a_denied_template_is_no_reason_to_miss_anything(live_stream: AsyncStream) -> None:
    live, table = live_stream.live(), Table(live_stream)
    await live.activate([Template("todos", {"done": "bool"})])
    where = {"done": Encoded("true", "string")}
    query = live.query(lambda: table.of(done=True), entity="todos", where=where)
    assert await result_of(query) == []
    await table.put(1, done=True)
    assert await result_of(query) == [{"id": 1, "done": True}]


async def test_a_denied_query_asks_for_its_table(base_url: str, new_path: str) -> None:
    class Listening(HttpxTransport):
        def __init__(self) -> None:
            super().__init__()
            self.waits: list[dict[str, Any]] = []

        async def send(self, request: Request) -> Response:
            if request.url.endswith("/touch/wait"):
                self.waits.append(msgspec.json.decode(request.body))
            return await super().send(request)

    transport = Listening()
    async with AsyncHeadwater(base_url, transport=transport) as client:
        stream = client.stream(new_path)
        await stream.create(content_type="application/json")
        live, table = stream.live(), Table(stream)
        await live.set_profile(ENABLED)
        await live.activate([Template("todos", {"done": "bool"})])
        for value, kind in ((Encoded(True, "string"), "coarse"), (True, "fine")):
            query = live.query(lambda: 1, entity="todos", where={"done": value})
            await result_of(query)
            await table.put(1, done=True)
            await result_of(query)
            assert transport.waits.pop()["interestMode"] == kind


async def test_a_reset_runs_everything_again(live_stream: AsyncStream) -> None:
    query = live_stream.live().query(lambda: 1, entity="todos", where={"tenant": "t1"})
    assert await result_of(query) == 1
    await live_stream.append({"headers": {"control": "reset"}})
    assert await result_of(query) == 1


async def test_changed_settings_are_ridden_out(live_stream: AsyncStream) -> None:
    live, table = live_stream.live(), Table(live_stream)
    query = live.query(lambda: table.of(tenant="t1"), entity="todos", where={"tenant": "t1"})
    await result_of(query)
    waiting = asyncio.create_task(result_of(query))
    await waiters(live, 1)
    await live.set_profile(StateProtocol(TouchSettings(enabled=True, coarse_interval_ms=5)))
    assert await waiting == []
    await table.put(1, tenant="t1")
    assert len(await result_of(query)) == 1


async def test_switching_it_off_ends_the_query(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    query = live.query(lambda: 1, entity="todos")
    await result_of(query)
    waiting = asyncio.create_task(result_of(query))
    await waiters(live, 1)
    await live.set_profile({"kind": "generic"})
    with pytest.raises(LiveNotEnabled):
        await waiting


async def test_deleting_the_stream_ends_the_query(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    query = live.query(lambda: 1, entity="todos")
    await result_of(query)
    waiting = asyncio.create_task(result_of(query))
    await waiters(live, 1)
    await live_stream.delete()
    with pytest.raises(StreamNotFound):
        await waiting


async def test_closing_ends_a_wait_elsewhere(live_stream: AsyncStream) -> None:
    live = live_stream.live()
    query = live.query(lambda: 1, entity="todos")
    await result_of(query)
    waiting = asyncio.create_task(anext(query, "the end"))
    await waiters(live, 1)
    await query.aclose()
    assert await waiting == "the end"
    await waiters(live, 0)


async def test_templates_that_retire_are_declared_again(live_stream: AsyncStream) -> None:
    live, table = live_stream.live(), Table(live_stream)
    settings = {"templates": {"gcIntervalMs": 1}}
    await live.set_profile({"kind": "state-protocol", "touch": {"enabled": True, **settings}})
    query = live.query(
        lambda: table.of(tenant="t1"), entity="todos", where={"tenant": "t1"}, ttl_s=0.001
    )
    await result_of(query)
    for number in range(3):
        await until(live, lambda meta: meta.active_templates == 0)
        await table.put(number, tenant="t1")
        while len(await result_of(query)) != number + 1:
            pass


def test_mistakes_are_told(base_url: str) -> None:
    with Headwater(base_url) as client:
        live = client.stream("any").live()
        for wait_s in (0, -1, 121):
            with pytest.raises(ValueError, match="wait"):
                live.query(lambda: 1, entity="todos", wait_s=wait_s)


def test_the_blocking_query_runs_on_the_callers_thread(base_url: str, new_path: str) -> None:
    """Database connections often belong to the thread that opened them."""
    with Headwater(base_url) as client:
        stream = client.stream(new_path)
        stream.create(content_type="application/json")
        stream.live().set_profile(ENABLED)
        with stream.live().query(threading.get_ident, entity="todos") as query:
            for thread in query:
                assert thread == threading.get_ident()
                break


@pytest.mark.parametrize("after_s", [0.0, 0.2])
async def test_an_answer_to_somebody_elses_wait_is_not_believed(
    base_url: str, new_path: str, after_s: float
) -> None:
    """A proxy that mixes up answers says "nothing happened, go on from here"."""

    class Confused(HttpxTransport):
        quiet: Response | None = None

        async def send(self, request: Request) -> Response:
            if request.url.endswith("/touch/wait") and self.quiet is not None:
                answer, self.quiet = self.quiet, None
                await asyncio.sleep(after_s)
                return answer
            return await super().send(request)

    transport = Confused()
    async with AsyncHeadwater(base_url, transport=transport) as client:
        live, table, query = await query_of_t1(client.stream(new_path))
        await table.put(1, tenant="t1")
        await live.meta(settle=True)
        transport.quiet = await quiet_answer(base_url, new_path)
        assert len(await result_of(query)) == 1
        assert transport.quiet is None


async def test_a_quiet_query_goes_on_from_the_latest_cursor(base_url: str, new_path: str) -> None:
    """The older a cursor is, the more often the server has to say "perhaps"."""
    asked: asyncio.Queue[str] = asyncio.Queue()

    class Noting(HttpxTransport):
        async def send(self, request: Request) -> Response:
            if request.url.endswith("/touch/wait"):
                asked.put_nowait(json.loads(request.body)["cursor"])
            return await super().send(request)

    async with asyncio.timeout(HANG_S), AsyncHeadwater(base_url, transport=Noting()) as client:
        live, table, query = await query_of_t1(client.stream(new_path))
        waiting = asyncio.create_task(result_of(query))
        await asked.get()
        await table.put(1, tenant="t2")
        now = (await live.meta(settle=True)).cursor
        while await asked.get() != now:
            pass
        await table.put(2, tenant="t1")
        assert len(await waiting) == 1


async def query_of_t1(
    stream: AsyncStream,
) -> tuple[AsyncLiveStream, Table, AsyncLiveQuery[list[dict[str, Any]]]]:
    """A live query that has had its first result, over a table that is still empty."""
    await stream.create(content_type="application/json")
    live, table, where = stream.live(), Table(stream), {"tenant": "t1"}
    await live.set_profile(ENABLED)
    query = live.query(lambda: table.of(**where), entity="todos", where=where, wait_s=0.2)
    assert await result_of(query) == []
    return live, table, query


async def quiet_answer(base_url: str, path: str) -> Response:
    async with AsyncHeadwater(base_url) as other:
        return await other.request(
            "POST",
            f"/v1/stream/{path}/touch/wait",
            json={"cursor": "now", "timeoutMs": 0, "keys": ["0" * 16], "interestMode": "coarse"},
        )


# ── Against an oracle ────────────────────────────────────────────────────────────────────────

TENANTS = ["t1", "t2", "t3"]
STATUSES = ["open", "done"]


class Watched:
    """A live query that stops when its result is the one that the database has in the end."""

    def __init__(self, live: AsyncLiveStream, run: Callable[[], Any], **shape: Any) -> None:
        self._query = live.query(run, entity="todos", wait_s=1.0, **shape)
        self._run = run
        self.results: list[Any] = []
        self.final = asyncio.Event()

    async def watch(self) -> None:
        async for result in self._query:
            self.results.append(result)
            if self.final.is_set() and result == self._run():
                return

    async def end(self) -> None:
        """The database has its final state. The last result must become that, or the test hangs."""
        self.final.set()
        if self.results and self.results[-1] == self._run():
            await self._query.aclose()


def watched_queries(live: AsyncLiveStream, table: Table) -> list[Watched]:
    queries = [Watched(live, lambda: table.of())]
    for tenant in TENANTS:
        where = {"tenant": tenant}

        def titles(tenant: str = tenant) -> list[str]:
            return sorted(f"{row['id']} {row['title']}" for row in table.of(tenant=tenant))

        def count(tenant: str = tenant) -> int:
            return len(table.of(tenant=tenant, status="open"))

        def everything(tenant: str = tenant) -> list[dict[str, Any]]:
            return table.of(tenant=tenant)

        queries += [
            Watched(live, titles, where=where, project=["title"]),
            Watched(live, count, where={**where, "status": "open"}, membership_only=True),
            Watched(live, everything, where=where),
        ]
    return queries


async def write(table: Table, seed: int, keys: range, changes: int) -> None:
    """Random changes to rows that nobody else writes, so that the log has them in order."""
    dice = random.Random(seed)
    for _ in range(changes):
        key = dice.choice(keys)
        if key in table.rows and dice.random() < 0.2:
            await table.drop(key)
        else:
            await table.put(
                key,
                tenant=dice.choice(TENANTS),
                status=dice.choice(STATUSES),
                title=dice.choice("abc"),
            )
        if dice.random() < 0.2:
            await asyncio.sleep(dice.random() * 0.01)


@asynccontextmanager
async def watching(queries: list[Watched]) -> AsyncIterator[None]:
    async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as group:
        for query in queries:
            group.create_task(query.watch())
        yield
        for query in queries:
            await query.end()


def check(queries: list[Watched]) -> None:
    for query in queries:
        assert query.results[-1] == query._run()


@pytest.mark.parametrize("seed", seeds.several(3))
@pytest.mark.parametrize("with_before", [True, False])
async def test_the_last_result_is_the_final_state(
    async_stream: AsyncStream, seed: int, with_before: bool
) -> None:
    table = Table(async_stream, with_before=with_before)
    queries = watched_queries(async_stream.live(), table)
    async with watching(queries), asyncio.TaskGroup() as writers:
        for number in range(3):
            rows = range(number * 5, number * 5 + 5)
            writers.create_task(write(table, seed * 10 + number, rows, changes=40))
    check(queries)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds.several(3))
async def test_the_same_through_a_bad_network(base_url: str, new_path: str, seed: int) -> None:
    timeouts = Timeouts(connect_s=5.0, answer_s=0.5, long_poll_s=1.5)
    async with (
        FaultyProxy(base_url, seed=seed, fault_rate=0.3) as proxy,
        AsyncHeadwater(base_url) as direct,
        AsyncHeadwater(proxy.url, retry=RESTLESS, timeouts=timeouts) as client,
    ):
        stream = direct.stream(new_path)
        await stream.create(content_type="application/json")
        await stream.live().set_profile(ENABLED)
        table = Table(stream)
        queries = watched_queries(client.stream(new_path).live(), table)
        async with watching(queries):
            await write(table, seed, range(8), changes=150)
        check(queries)
        assert proxy.fates.total() > proxy.fates["pass"]


@pytest.mark.slow
@pytest.mark.crash
async def test_the_same_across_restarts(tmp_path: Path, start_server: StartServer) -> None:
    """The writer is an idempotent producer, as an outbox relay would use one."""
    server = start_server("--data", str(tmp_path))
    async with AsyncHeadwater(server.url, retry=RESTLESS) as client:
        stream = client.stream("todos")
        await stream.create(content_type="application/json")
        await stream.live().set_profile(ENABLED)
        options = ProducerOptions(linger_s=0.0, retry=RESTLESS)
        async with stream.producer("relay", options=options) as producer:
            table = ProducedTable(stream, producer.append)
            queries = watched_queries(stream.live(), table)
            async with watching(queries):
                for life in range(4):
                    await write(table, life, range(8), changes=30)
                    end = server.kill if life % 2 else server.stop
                    await asyncio.to_thread(end)
                    await asyncio.to_thread(server.start)
                await write(table, 99, range(8), changes=10)
                await producer.flush()
        check(queries)
        assert "unexpected_error" not in server.stderr


class ProducedTable(Table):
    def __init__(self, stream: AsyncStream, append: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(stream)
        self._stream = Appending(append)  # type: ignore[assignment]


class Appending:
    def __init__(self, append: Callable[[Any], Awaitable[Any]]) -> None:
        self.append = append
