"""Killed at every step of sealing, archiving, compaction: nothing lost, wrong or left over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import pytest

from headwater.core.lineage import Span
from headwater.core.stream import Appended, Created
from headwater.store.engine import Problem
from headwater.store.history.archive import Archive
from headwater.store.history.cold_segments import fetching
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.history.recovery import restore
from headwater.store.history.segment import PRESENT
from headwater.store.sqlite.database import DATABASE_NAME
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.history import crash_child
from tests.support.decided import CommittedStreams
from tests.support.sealing import archive_all, compact_once, in_rows, seal

STEPS = [
    "created",
    "bodies written",
    "written",
    "renamed",
    "synced",
    "directory synced",
    "verified",
    "before commit",
    "committed",
    "noted",
    "before moving",
    "moved",
    "before removing",
    "removed",
    "upload begun",
    "uploaded",
    "upload verified",
    "upload recorded",
    "eviction recorded",
    "evicted",
    "catalogued",
    "removed from object storage",
]


def run_child(directory: Path, *fatal: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.history.crash_child", str(directory), *fatal],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each step is taken when nobody is killed."""
    done = run_child(tmp_path_factory.mktemp("whole"))
    assert done.returncode == 0, done.stderr
    return Counter(done.stdout.splitlines())


def test_every_step_is_one_of_these(taken: Counter[str]) -> None:
    assert set(taken) == set(STEPS)


class Witness(SqliteEngine):
    """Remembers what was committed, in order."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.commits: list[tuple[object, ...]] = []

    def commit(self, mutations) -> None:  # type: ignore[no-untyped-def]
        super().commit(mutations)
        self.commits.append(tuple(mutations))


@cache
def whole_life(directory: Path) -> tuple[dict[int, list[Appended]], CommittedStreams]:
    """Every append that is ever committed, by run, and what the streams are like in the end."""
    with closing(Witness(directory)) as engine:
        streams = crash_child.live(engine, crash_child.far_from(directory))
        appends: dict[int, list[Appended]] = {}
        for mutation in (m for commit in engine.commits for m in commit):
            if isinstance(mutation, Created):
                appends[mutation.config.id] = []
            elif isinstance(mutation, Appended):
                appends[mutation.stream_id].append(mutation)
        return appends, streams


def check(directory: Path, appends: dict[int, list[Appended]]) -> None:
    """What is there is a part of the life above up to some commit, in every tier and in files."""
    database = directory / DATABASE_NAME
    found = [line for line in verify_database(database) if isinstance(line, Problem)]
    assert found == []
    with closing(SqliteEngine(directory)) as engine:
        Archive(engine.history, crash_child.far_from(directory), 10**6)
        known = engine._query(
            "SELECT name, local, remote, EXISTS (SELECT 1 FROM extents WHERE segment_id = id)"
            " FROM segments"
        )
        here, there = names(directory), names(Path(f"{directory}.far"))
        for name, local, remote, needed in known:
            if needed:
                assert name in here if local else name in there
            if needed and remote == PRESENT:
                assert name in there
        assert here <= {name for name, local, *_ in known if local}, "the rest was swept"
        assert there <= {name for name, _, remote, _ in known if remote}, "nothing is forgotten"
        for run, committed in appends.items():
            loaded = engine.streams.load_id(run)
            if loaded is None:
                continue
            state = loaded.state
            own = [a for a in committed if a.end <= state.tail]
            reads = partial(
                engine.appends.read, Span(run, state.config.lineage.base, state.tail), 10**9
            )
            if own:
                assert fetching(reads) == [append.body for append in own]
            for append in own:
                assert fetching(partial(engine.appends.append_at, run, append.start)) == append


def check_restored(directory: Path, appends: dict[int, list[Appended]]) -> None:
    """Whatever the newest catalog names is there."""
    remote, new = crash_child.far_from(directory), Path(f"{directory}.new")
    if not remote.catalogs():
        return
    shutil.rmtree(new, ignore_errors=True)
    restore(remote, new)
    with closing(SqliteEngine(new)) as engine:
        Archive(engine.history, remote, 10**6)
        for run, committed in appends.items():
            loaded = engine.streams.load_id(run)
            if loaded is not None and loaded.state.tail > loaded.state.config.lineage.base:
                tail = loaded.state.tail
                span = Span(run, loaded.state.config.lineage.base, tail)
                own = [append.body for append in committed if append.end <= tail]
                assert fetching(partial(engine.appends.read, span, 10**9)) == own


def names(directory: Path) -> set[str]:
    files = directory / DIRECTORY_NAME
    return {path.name for path in files.iterdir()} if files.exists() else set()


LAST = ["before commit", "committed", "uploaded", "evicted", "verified", "removed", "catalogued"]


@pytest.mark.crash
@pytest.mark.parametrize(
    "step, which", [*((step, "first") for step in STEPS), *((step, "last") for step in LAST)]
)
def test_killed(
    step: str,
    which: str,
    taken: Counter[str],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    occurrence = 1 if which == "first" else taken[step]
    done = run_child(tmp_path, step, str(occurrence))
    assert done.returncode == -signal.SIGKILL, done.stderr
    appends, _ = whole_life(tmp_path_factory.getbasetemp() / "life")
    check(tmp_path, appends)
    check_restored(tmp_path, appends)
    # And life goes on: everything can be sealed, removed and read as if nothing had happened.
    with closing(SqliteEngine(tmp_path)) as engine:
        while engine.reap(3):
            pass
        while in_rows(engine):
            seal(engine, None, crash_child.SEGMENT_BYTES)
        archive = Archive(engine.history, crash_child.far_from(tmp_path), 10**6)
        compact_once(engine, 64 * crash_child.SEGMENT_BYTES, archive)
        while engine.reap(3):
            pass
        archive_all(archive, 0)
    check(tmp_path, appends)
    check_restored(tmp_path, appends)


def test_a_file_is_on_disk_before_its_rows_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill cannot show this, since the system keeps what was not synced; a power cut could."""
    story: list[str] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        story.append(f"sync {Path(os.readlink(f'/proc/self/fd/{file}')).name}")
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with closing(SqliteEngine(tmp_path, step=story.append)) as engine:
        crash_child.live(engine, crash_child.far_from(tmp_path))
    # The directory that the first file goes into is new as well.
    assert story[story.index("created") - 1 : story.index("committed") + 1] == [
        f"sync {tmp_path.name}",
        "created",
        "bodies written",
        "written",
        "renamed",
        next(line for line in story if line.startswith("sync 0000000001-")),
        "synced",
        f"sync {DIRECTORY_NAME}",
        "directory synced",
        "verified",
        "before commit",
        "committed",
    ]
