"""Sealing by hand: does at once, step by step, what the service does in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.limits import MIB
from headwater.store.history.archive import Archive
from headwater.store.history.compaction import Rewriting, usable
from headwater.store.history.compaction_choice import choose
from headwater.store.history.ledger import Due, into_files
from headwater.store.history.policies import SealPolicy
from headwater.store.sqlite.engine import SqliteEngine

AT_ONCE: Final = SealPolicy(after_bytes=1, after_ms=0, segment_bytes=MIB)
SEALING_AT_ONCE: Final = ("--seal-after-bytes", "1", "--seal-after-ms", "0")


def in_rows(engine: SqliteEngine) -> list[Due]:
    """What is still in rows, by run."""
    found = engine._query("SELECT stream_id, sum(length(body)) FROM ops GROUP BY stream_id")
    return [Due(*row) for row in found]


def seal(engine: SqliteEngine, runs: Sequence[int] | None = None, segment_bytes: int = MIB) -> None:
    """Seal all runs, or some of them, in files of about this size."""
    due = [one for one in in_rows(engine) if runs is None or one.run in runs]
    for file in into_files(due, segment_bytes):
        recording = engine.history.gather(file, segment_bytes)
        if recording is not None:
            while engine.history.record(recording, 5):
                pass
            engine.history.settle(recording)


def archive_all(archive: Archive, local_bytes_max: int) -> None:
    """Upload everything to object storage, evict some files, remove what is no longer needed."""
    for row in archive.to_upload():
        if archive.note_begun(row) and archive.upload(row):
            archive.note_uploaded(row)
    for row in archive.to_evict(local_bytes_max):
        archive.evict(row)
    # Files that are no longer needed are removed once the catalogs that name them are gone.
    for _ in range(4):
        archive.catalog(1_000)
        for row in archive.to_remove():
            archive.remove(row)
            archive.note_removed(row)


def compact_once(
    engine: SqliteEngine, segment_bytes: int, archive: Archive | None = None, company: int = 2
) -> int:
    """Rewrite what is worth it as the service does; returns how many files were written."""
    groups = choose(usable(engine.history), segment_bytes, company)
    for files in groups:
        rewriting = Rewriting(engine.history, [one.row for one in files])
        while rewriting.copy():
            pass
        rewriting.finish()
        rewriting.note(5)
        while rewriting.record(uploads=archive is not None):
            if archive is not None and rewriting.is_awaited():
                archive_all(archive, 10**9)
        rewriting.end()
    return len(groups)
