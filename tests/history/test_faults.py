"""Object storage on bad days: all else goes on, nothing is lost, and it ends as it should."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import DataCorrupt, HistoryUnavailable
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor
from headwater.service import background, housekeeping
from headwater.service.history import archiving as archiving_module
from headwater.service.history import compacting as compacting_module
from headwater.service.history import fetching as fetching_module
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.history.archive import Archive
from headwater.store.history.catalog import decode_catalog
from headwater.store.history.object_storage import Remote
from headwater.store.history.orphans import NotItsOwn, find_orphans
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.recovery import restore
from headwater.store.history.segment import Segment, SegmentRow
from headwater.store.sqlite.engine import SqliteEngine
from tests.history.test_compacting import needed_segments
from tests.history.test_sealing import all_sealed
from tests.support.decided import CommittedStreams
from tests.support.logs import begin, data, read_all, turns, until
from tests.support.sealing import AT_ONCE, archive_all, compact_once, seal
from tests.support.weather import FAILS, OLD, SLOW, TRUNCATES, Call, Weather

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)
ROUNDS = 9


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Iterator[Weather]:
    weather = Weather()
    monkeypatch.setattr("headwater.store.history.object_storage.obstore", weather)
    for module, name in (
        (compacting_module, "_PAUSE_S"),
        (compacting_module, "_AWAITED_S"),
        (archiving_module, "_PAUSE_S"),
        (archiving_module, "_CATALOG_SOON_S"),
        (archiving_module, "_CATALOG_EVERY_S"),
        (background, "_PAUSE_AFTER_FAILURE_S"),
        (background, "_PAUSE_AFTER_FAILURE_S_MAX"),
    ):
        monkeypatch.setattr(module, name, 0.005)
    monkeypatch.setattr(compacting_module, "_REST_PER_LOOK", 0)
    monkeypatch.setattr(archiving_module, "_REST_PER_CATALOG", 0)
    monkeypatch.setattr(housekeeping, "_IDLE_S", 0.05)
    monkeypatch.setattr(fetching_module, "_REST_S", 0)
    yield weather
    weather.clear_up()


class Place:
    def __init__(self, directory: Path) -> None:
        self.data, self.far = directory / "data", directory / "far"

    def there(self) -> set[str]:
        return {path.name for path in (self.far / "segments").glob("*")}

    def here(self) -> set[str]:
        return {path.name for path in (self.data / "segments").glob("*")}

    def require_whole_catalog(self) -> None:
        """The newest catalog that can be read names nothing that is not there."""
        needed: list[SegmentRow] | None = None
        for path in sorted((self.far / "catalogs").glob("*"), reverse=True):
            with suppress(DataCorrupt, FileNotFoundError):
                needed = needed_segments(decode_catalog(path.name, path.read_bytes()))
                break
        assert needed is not None
        for row in needed:
            Segment.open(self.far / "segments" / row.name, row).check_all()

    @asynccontextmanager
    async def running(self, local_bytes_max: int) -> AsyncIterator[tuple[Log, SqliteEngine]]:
        engine = SqliteEngine(self.data)
        archive = ArchivePolicy(self.far.as_uri(), local_bytes_max, 10**6)
        log = await Log.start(engine, LIMITS, sealing=AT_ONCE, archive=archive)
        try:
            yield log, engine
        finally:
            await log.stop()
        with closing(SqliteEngine(self.data)) as engine:
            assert [line for line in engine.verify() if isinstance(line, Problem)] == []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def is_settled(place: Place, engine: SqliteEngine) -> Callable[[], bool]:
    """Everything is uploaded, few files are left, and nothing else lies about."""

    def settled() -> bool:
        found = engine._query("SELECT name, remote FROM segments")
        known = {name for name, remote in found if remote == 1}
        return (
            not engine.history.making
            and len(found) <= ROUNDS
            and place.there() == known == {name for name, _ in found} == place.here()
        )

    return settled


async def write_on(log: Log, engine: SqliteEngine) -> bytes:
    """Appends to a stream, each in a file of its own, read back at once."""
    content = b""
    for number in range(ROUNDS):
        body = b"%04d;" % number * 150
        await log.append("a", data(body))
        content += body
        await until(all_sealed(engine))
    return content


@pytest.mark.slow
@pytest.mark.parametrize(
    "call, fault",
    [
        *((("put", "segments"), fault) for fault in (FAILS, SLOW, TRUNCATES)),
        *((("get_range", "segments"), fault) for fault in (FAILS, SLOW, TRUNCATES)),
        *((("put", "catalogs"), fault) for fault in (FAILS, SLOW, TRUNCATES)),
        *((("get", "catalogs"), fault) for fault in (FAILS, TRUNCATES)),
        *((("list", "catalogs"), fault) for fault in (FAILS, SLOW, OLD)),
        (("delete", "catalogs"), FAILS),
        *((("delete", "segments"), fault) for fault in (FAILS, SLOW)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
async def test_upload_compaction_and_catalogs(
    place: Place, weather: Weather, call: Call, fault: str
) -> None:
    async with place.running(10**9) as (log, engine):
        await log.create(Create("a"))
        content = await write_on(log, engine)
        await until(is_settled(place, engine))
        weather.worsen(call, fault)
        content += await write_on(log, engine)
        assert await read_all(log, "a") == content, "all of it is here, whatever is there"
        await until(lambda: weather.struck.get(call, 0) > 0)
        for _ in range(10):
            await turns(20)
            place.require_whole_catalog()
        weather.clear_up()
        await until(is_settled(place, engine))
        assert await read_all(log, "a") == content
    restored = restore(Remote(place.far.as_uri()), place.data.with_name("new"))
    assert restored.missing == []


@pytest.mark.parametrize("fault", [FAILS, TRUNCATES, SLOW])
async def test_fetching(place: Place, weather: Weather, fault: str) -> None:
    call = ("get_range", "segments")
    async with place.running(0) as (log, engine):
        await log.create(Create("a"))
        content = await write_on(log, engine)
        cold = "SELECT max(local), min(remote) FROM segments"
        await until(lambda: engine._query(cold) == [(0, 1)])
    async with place.running(0) as (log, engine):
        await log.create(Create("b"))
        weather.worsen(call, fault)
        # Who needs it waits or is refused, and nobody else is.
        reading = begin(log.read("a", Anchor.START))
        await until(lambda: weather.struck.get(call, 0) > 0)
        await log.append("b", data(b"goes on"))
        assert await read_all(log, "b") == b"goes on"
        weather.clear_up()
        if fault == SLOW:
            assert content.startswith(b"".join((await reading).bodies))
        else:
            with pytest.raises((HistoryUnavailable, DataCorrupt)):
                await reading
        assert await read_all(log, "a") == content


# ── Restoring ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def site(place: Place, weather: Weather) -> Iterator[tuple[SqliteEngine, Archive, Remote]]:
    """Streams in many files, some of which have been removed, all of it in object storage."""
    remote = Remote(place.far.as_uri())
    with closing(SqliteEngine(place.data)) as engine:
        archive, streams = Archive(engine.history, remote, 10**6), CommittedStreams(engine)
        for path in "abc":
            streams.create(Create(path, "a/b"), 1_000)
            for number in range(4):
                streams.append(path, Append(b"%d" % number * 100, "a/b"), 1_000)
                seal(engine)
        streams.delete("b", 2_000)
        while engine.reap(10):
            pass
        archive_all(archive, 10**9)
        yield engine, archive, remote


def test_restoring_by_an_old_list(
    place: Place, site: tuple[SqliteEngine, Archive, Remote], weather: Weather
) -> None:
    """An older catalog is as good, as long as it is kept."""
    engine, archive, remote = site
    remote.catalogs()
    weather.worsen(("list", "catalogs"), OLD)
    compact_once(engine, 10**6)
    for row in archive.to_upload():
        archive.note_begun(row)
        archive.upload(row)
        archive.note_uploaded(row)
    while engine.reap(10):
        pass
    archive.catalog(1_000)
    assert archive.leftovers()
    assert archive.to_remove() == []
    assert restore(remote, place.data.with_name("old")).missing == []
    weather.clear_up()
    assert restore(remote, place.data.with_name("new")).missing == []


# ── Files that nobody knows of ───────────────────────────────────────────────────────────────

ORPHAN = "0000009999-0123456789abcdef0123456789abcdef.seg"


def test_only_what_nobody_knows_of_is_an_orphan(
    place: Place, site: tuple[SqliteEngine, Archive, Remote]
) -> None:
    engine, _, remote = site
    assert find_orphans(remote, engine.history.query) == []
    (place.far / "segments" / ORPHAN).write_bytes(b"?")
    assert find_orphans(remote, engine.history.query) == [ORPHAN]
    # An upload that was begun, and may or may not be there, is not forgotten.
    (row, *_) = engine.history.query("SELECT id FROM segments", ())
    engine._writer.execute("UPDATE segments SET remote = 2 WHERE id = ?", row)
    assert find_orphans(remote, engine.history.query) == [ORPHAN]


def test_what_a_kept_catalog_names_is_none(
    place: Place, site: tuple[SqliteEngine, Archive, Remote]
) -> None:
    """The database has forgotten it, but somebody could restore from before that."""
    engine, _, remote = site
    name = engine.history.query("SELECT name FROM segments ORDER BY id", ())[0][0]
    engine._writer.execute("DELETE FROM segments WHERE name = ?", (name,))
    assert find_orphans(remote, engine.history.query) == []


@pytest.mark.parametrize("prefix", ["segments", "catalogs"])
def test_old_lists_make_no_orphans(
    site: tuple[SqliteEngine, Archive, Remote], weather: Weather, prefix: str
) -> None:
    engine, archive, remote = site
    assert find_orphans(remote, engine.history.query) == []
    before = set(remote.segments())
    weather.worsen(("list", prefix), OLD)
    compact_once(engine, 10**6, archive)
    while engine.reap(10):
        pass
    weather.faults.pop(("list", "catalogs"), None)
    archive_all(archive, 10**9)
    weather.worsen(("list", prefix), OLD)
    found = set(find_orphans(remote, engine.history.query))
    # At worst what has been removed already: to remove that again does no harm.
    weather.clear_up()
    assert not found & set(remote.segments())
    assert found <= before


def test_damaged_catalogs_and_failures_remove_nothing(
    place: Place, site: tuple[SqliteEngine, Archive, Remote], weather: Weather
) -> None:
    engine, _, remote = site
    for call in (("list", "segments"), ("list", "catalogs"), ("get", "catalogs")):
        weather.worsen(call, FAILS)
        with pytest.raises(HistoryUnavailable):
            find_orphans(remote, engine.history.query)
        weather.clear_up()
    weather.worsen(("get", "catalogs"), TRUNCATES)
    with pytest.raises(NotItsOwn):
        find_orphans(remote, engine.history.query)


def test_a_server_of_its_own_is_not_mistaken_for_another(
    place: Place, site: tuple[SqliteEngine, Archive, Remote], tmp_path: Path
) -> None:
    _, _, remote = site
    with closing(SqliteEngine(tmp_path / "other")) as other, pytest.raises(NotItsOwn):
        find_orphans(remote, other.history.query)
    restore(remote, tmp_path / "restored")
    with closing(SqliteEngine(tmp_path / "restored")) as restored:
        assert find_orphans(remote, restored.history.query) == []
