"""History in object storage: a directory stands for it, and `moto` for S3."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import DataCorrupt, HistoryUnavailable, StreamNotFound
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor
from headwater.service import background
from headwater.service.history import archiving as archiving_module
from headwater.service.history import fetching as fetching_module
from headwater.service.log import Log
from headwater.store.history.object_storage import Remote
from headwater.store.history.open_segments import CACHE_NAME
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.segment import SegmentRow
from headwater.store.sqlite.engine import SqliteEngine
from tests.history.test_sealing import all_sealed, fill
from tests.http.client import TEXT, Client, eventually
from tests.support.logs import data, fork, read_all, turns, until
from tests.support.object_storage import ObjectStorage
from tests.support.sealing import AT_ONCE, SEALING_AT_ONCE
from tests.support.server import ServerProcess

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)


class Place:
    """A data directory, and a directory that is far away."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.far = directory / "far"

    def here(self) -> list[str]:
        return sorted(path.name for path in (self.data / "segments").glob("*"))

    def there(self) -> list[str]:
        return sorted(path.name for path in (self.far / "segments").glob("*"))

    @asynccontextmanager
    async def running(
        self, local_bytes_max: int = 0, cache_bytes_max: int = 10**6
    ) -> AsyncIterator[tuple[Log, SqliteEngine]]:
        engine = SqliteEngine(self.data)
        policy = ArchivePolicy(self.far.as_uri(), local_bytes_max, cache_bytes_max)
        log = await Log.start(engine, LIMITS, sealing=AT_ONCE, archive=policy)
        try:
            yield log, engine
        finally:
            await log.stop()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(archiving_module, "_PAUSE_S", 0.005)
    monkeypatch.setattr(archiving_module, "_CATALOG_SOON_S", 0.005)
    monkeypatch.setattr(archiving_module, "_REST_PER_CATALOG", 0)
    return Place(tmp_path)


def all_cold(engine: SqliteEngine) -> Callable[[], bool]:
    sealed = all_sealed(engine)
    return lambda: (
        sealed() and engine._query("SELECT max(local), min(remote) FROM segments") == [(0, 1)]
    )


async def test_what_is_only_there_reads_the_same(place: Place) -> None:
    async with place.running() as (log, engine):
        content = {path: await fill(log, path) for path in ("a", "b")}
        await until(all_cold(engine))
        await until(lambda: place.here() == [])
        assert place.there()
        for path, wanted in content.items():
            assert await read_all(log, path) == wanted
        offset, skip = await log.find_last("a", 1)
        assert (await log.read("a", offset)).bodies == [b"a 19;" * 20]
        assert skip == 0
        await log.append("a", data(b"more"))
        assert await read_all(log, "a") == content["a"] + b"more"
    # And from a cache that begins empty.
    async with place.running() as (log, engine):
        await until(all_cold(engine))
        assert await read_all(log, "a") == content["a"] + b"more"
        assert await read_all(log, "b") == content["b"]


async def test_files_stay_as_long_as_there_is_room(place: Place) -> None:
    async with place.running(local_bytes_max=10**9) as (log, engine):
        await fill(log, "a")
        await until(lambda: all_sealed(engine)() and place.here() == place.there() != [])
        await turns(200)
        assert place.here() == place.there()


async def test_the_cache_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.store.history.open_segments._COLD_MIN", 2)
    async with place.running(cache_bytes_max=0) as (log, engine):
        content = {}
        for number in range(6):
            content[f"s{number}"] = await fill(log, f"s{number}", 3)
            await until(all_cold(engine))
        for _ in range(2):
            for path, wanted in content.items():
                assert await read_all(log, path) == wanted
                assert len([*(place.data / CACHE_NAME).iterdir()]) <= 2


async def test_what_nobody_needs_goes_from_there_too(place: Place) -> None:
    async with place.running() as (log, engine):
        content = await fill(log, "source")
        await log.create(fork("copy", "source"))
        await until(all_cold(engine))
        await log.delete("source")
        assert await read_all(log, "copy") == content
        assert place.there()
        await log.delete("copy")
        await until(lambda: engine._query("SELECT count(*) FROM segments") == [(0,)])
        assert (place.there(), place.here()) == ([], [])


class Slow(Remote):
    """Object storage that counts, and waits for the test if it is to."""

    reads = 0
    gate = threading.Event()

    def read(self, row: SegmentRow, offset: int, length: int) -> bytes:
        Slow.reads += 1
        assert Slow.gate.wait(60)
        return super().read(row, offset, length)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Slow]]:
    monkeypatch.setattr("headwater.store.history.object_storage.Remote", Slow)
    Slow.reads = 0
    Slow.gate = threading.Event()
    Slow.gate.set()
    yield Slow
    Slow.gate.set()


async def test_one_fetch_serves_all_who_wait(place: Place, slow: type[Slow]) -> None:
    async with place.running() as (log, engine):
        content = await fill(log, "a", 5)
        await until(all_cold(engine))
        slow.reads = 0
        slow.gate.clear()
        readers = [asyncio.create_task(read_all(log, "a")) for _ in range(20)]
        await until(lambda: slow.reads > 0)
        # One who loses patience does not take it from the others.
        readers.pop().cancel()
        slow.gate.set()
        assert await asyncio.gather(*readers) == [content] * 19
        segments = engine._query("SELECT count(*) FROM segments")[0][0]
        assert slow.reads == 2 * segments, "the end of each, and its only piece"


async def test_who_does_not_need_it_does_not_wait(place: Place, slow: type[Slow]) -> None:
    """More wait for object storage than there are threads to read with."""
    async with place.running() as (log, engine):
        for number in range(12):
            await fill(log, f"s{number}", 2)
            await until(all_cold(engine))
        slow.gate.clear()
        waiting = [asyncio.create_task(read_all(log, f"s{number}")) for number in range(12)]
        await turns(50)
        await log.create(Create("new"))
        await log.append("new", data(b"one"))
        await log.append("new", data(b"two"))
        assert await read_all(log, "new") == b"onetwo"
        slow.gate.set()
        assert all(await asyncio.gather(*waiting))


class Down(Remote):
    """Object storage that can be switched off."""

    is_down = False
    refusals = 0

    def read(self, row: SegmentRow, offset: int, length: int) -> bytes:
        self._refuse()
        return super().read(row, offset, length)

    def upload(self, path: Path) -> None:
        self._refuse()
        super().upload(path)

    def _refuse(self) -> None:
        if Down.is_down:
            Down.refusals += 1
            raise HistoryUnavailable("it is switched off")


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> type[Down]:
    monkeypatch.setattr("headwater.store.history.object_storage.Remote", Down)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.005)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.005)
    Down.is_down, Down.refusals = False, 0
    return Down


async def test_while_it_does_not_answer(
    place: Place, down: type[Down], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.running() as (log, engine):
        content = await fill(log, "cold")
        await until(all_cold(engine))
        down.is_down = True
        for _ in range(3):
            with pytest.raises(HistoryUnavailable):
                await log.read("cold", Anchor.START)
        assert down.refusals == 1, "after a refusal it is left alone for a while"
        # Appends, and everything that is here, are as good as ever; it all stays here meanwhile.
        local = await fill(log, "local")
        await until(all_sealed(engine))
        await until(lambda: down.refusals > 3)
        assert place.here()
        assert await read_all(log, "local") == local
        monkeypatch.setattr(fetching_module, "_REST_S", 0)
        down.is_down = False
        await until(all_cold(engine))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while True:
                with suppress(HistoryUnavailable):
                    assert await read_all(log, "cold") == content
                    break
        assert await read_all(log, "local") == local


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
async def test_damage_there_is_an_error_and_never_data(place: Place, harm: str) -> None:
    async with place.running() as (log, engine):
        await fill(log, "a")
        await until(all_cold(engine))
        for name in place.there():
            path = place.far / "segments" / name
            content = bytearray(path.read_bytes())
            content[20] ^= 1
            if harm == "remove":
                path.unlink()
            else:
                path.write_bytes(content if harm == "flip" else content[:-30])
        for _ in range(2):
            with pytest.raises((DataCorrupt, HistoryUnavailable)):
                await read_all(log, "a")


async def test_an_upload_that_arrives_damaged_does_not_count(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.005)
    upload, uploads = Remote.upload, 0

    def damage(remote: Remote, path: Path) -> None:
        nonlocal uploads
        uploads += 1
        upload(remote, path)
        if uploads < 3:
            arrived = place.far / "segments" / path.name
            content = bytearray(arrived.read_bytes())
            content[30] ^= 1
            arrived.write_bytes(content)

    monkeypatch.setattr(Remote, "upload", damage)
    async with place.running() as (log, engine):
        content = await fill(log, "a", 3)
        await until(lambda: uploads > 0)
        assert await read_all(log, "a") == content
        await until(all_cold(engine))
        assert uploads >= 3
        assert await read_all(log, "a") == content


async def test_without_its_store_a_server_says_what_is_missing(place: Place) -> None:
    async with place.running() as (log, engine):
        await fill(log, "a")
        await until(all_cold(engine))
    log = await Log.start(SqliteEngine(place.data), LIMITS)
    try:
        with pytest.raises(HistoryUnavailable, match="history-store"):
            await log.read("a", Anchor.START)
        await log.append("a", data(b"more"))
        with pytest.raises(StreamNotFound):
            await log.read("b", Anchor.START)
    finally:
        await log.stop()


@pytest.mark.parametrize("url", ["", "nonsense", "s3://", "ftp://x/y", "file://"])
def test_urls_that_lead_nowhere_are_refused_with_words(url: str) -> None:
    with pytest.raises(ValueError, match="object storage"):
        Remote(url)


# ── S3 ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with ObjectStorage() as storage:
        yield storage


def test_a_bucket_that_is_not_there(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in storage.environment.items():
        monkeypatch.setenv(name, value)
    nowhere = Remote("s3://nobody-made-this/history")
    with pytest.raises(HistoryUnavailable, match="create the bucket first"):
        nowhere.put_catalog("0001", b"{}")


def test_a_server_with_its_history_in_s3(storage: ObjectStorage, tmp_path: Path) -> None:
    arguments = [
        *("--data", str(tmp_path / "data"), *SEALING_AT_ONCE),
        *("--hot-bytes-per-stream-max", "0", "--chunk-bytes-max", "300000"),
        *("--history-store", storage.url, "--history-local-bytes-max", "0"),
    ]
    bodies = [bytes([65 + n]) * 100_000 for n in range(12)]
    with ServerProcess(*arguments, env=storage.environment) as server:
        client = Client(server)
        path = client.create(TEXT, *bodies)
        segments = tmp_path / "data" / "segments"
        eventually(lambda: segments.exists() and not [*segments.iterdir()])
        assert client.read_all(path) == b"".join(bodies)
        # The next start has nothing but what is there.
        server.restart()
        assert client.read_all(path) == b"".join(bodies)
        tag = client.get(path).headers["ETag"]
        server.restart()
        storage.stop()
        reply = client.get(path)
        assert reply.status == 503
        assert reply.headers["Retry-After"]
        assert json.loads(reply.body)["error"]["code"] == "history_unavailable"
        assert client.post(path, b"goes on", TEXT).status == 204
        assert client.get(path, f"offset={client.head(path).next_offset}").status == 200
        assert tag
        assert "Traceback" not in server.stderr
