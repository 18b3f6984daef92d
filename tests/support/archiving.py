"""History of the PostgreSQL engine by hand: at once, not in the background as in the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.core.limits import MIB
from headwater.store.history.compaction_choice import choose
from headwater.store.history.ledger import Due, into_files
from headwater.store.history.object_storage import Remote
from headwater.store.history.remote import RemoteRewriting
from headwater.store.history.sealing import Recording
from headwater.store.history.segment import SegmentRow
from headwater.store.history.segment_writer import nothing
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.history import PostgresqlHistory
from tests.support.postgresql import LEASE_MS

Step = Callable[[str], None]


@contextmanager
def archived(
    url: str, directory: Path, step: Step = nothing, address: str | None = None
) -> Iterator[tuple[PostgresqlEngine, PostgresqlHistory]]:
    """An engine with object storage: a directory that all engines of a database share."""
    cache = directory / "node" if address is None else directory / address.rpartition(":")[2]
    engine = PostgresqlEngine(url, lease_ms=LEASE_MS, address=address, cache=cache, step=step)
    try:
        assert engine.history is not None
        engine.history.connect(Remote((directory / "objects").as_uri()), MIB)
        yield engine, engine.history
    finally:
        engine.close()


def objects(directory: Path) -> set[str]:
    """The segments in object storage."""
    return {path.name for path in (directory / "objects" / "segments").glob("*.seg")}


def in_rows(history: PostgresqlHistory) -> list[Due]:
    found = history.query(
        "SELECT stream_id, sum(octet_length(body))::bigint FROM ops GROUP BY stream_id"
        " ORDER BY stream_id",
        (),
    )
    return [Due(*row) for row in found]


def gather(history: PostgresqlHistory, due: Sequence[Due] | None = None) -> Recording:
    recording = history.gather(in_rows(history) if due is None else due, MIB)
    assert recording is not None
    return recording


def finish(history: PostgresqlHistory, recording: Recording) -> None:
    """Run all steps after a file was written."""
    history.announce(recording, 5)
    history.publish(recording)
    while history.record(recording, 5):
        pass
    history.settle(recording)


def seal(history: PostgresqlHistory, segment_bytes: int = MIB) -> None:
    """Seal everything, in files of about this size."""
    while files := into_files(in_rows(history), segment_bytes):
        for due in files:
            recording = history.gather(due, segment_bytes)
            assert recording is not None
            finish(history, recording)


def compact(history: PostgresqlHistory, segment_bytes: int = MIB, company: int = 2) -> int:
    """Rewrite what this node has in files that are worth it; says how many came of it."""
    groups = choose(history.uses(), segment_bytes, company)
    for files in groups:
        move(history, copied(history, [one.row for one in files]))
    return len(groups)


def copied(history: PostgresqlHistory, files: Sequence[SegmentRow]) -> RemoteRewriting:
    rewriting = history.rewriting(files)
    try:
        while rewriting.copy():
            pass
        rewriting.finish()
    except BaseException:
        rewriting.end()
        raise
    return rewriting


def move(history: PostgresqlHistory, rewriting: RemoteRewriting) -> None:
    """Everything after a file was written anew."""
    assert rewriting.recording is not None
    try:
        history.announce(rewriting.recording, 5)
        history.publish(rewriting.recording)
        while rewriting.record():
            pass
    finally:
        rewriting.end()


def tidy(history: PostgresqlHistory) -> None:
    """Remove everything no longer needed."""
    if history.look():
        history.adopt()
    for row in history.to_remove(0):
        history.remove(row)
        history.note_removed(row)
