"""A process that seals, and kills itself at a step that its parent chose.

    python -m tests.history.crash_child DIRECTORY [STEP OCCURRENCE]

Without a step it prints the steps that it takes, one to a line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from headwater.core.decisions import Append, Create
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.store.history.archive import Archive
from headwater.store.history.large_appends import LARGE_BYTES
from headwater.store.history.object_storage import Remote
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import CommittedStreams
from tests.support.sealing import archive_all, compact_once, seal

BYTES: Final = "application/octet-stream"
SEGMENT_BYTES: Final = 1_024


def far_from(directory: Path) -> Remote:
    """The object storage of a data directory: one beside it."""
    return Remote((directory.parent / f"{directory.name}.far").as_uri())


def live(engine: SqliteEngine, remote: Remote) -> CommittedStreams:
    """A life with everything in it that changes files. The same in every process."""
    streams, archive = CommittedStreams(engine), Archive(engine.history, remote, 10**6)
    for number in range(6):
        streams.create(Create(f"s/{number}", BYTES, b"first of %d;" % number), 1_000)
    _grow(streams, 0)
    seal(engine, None, SEGMENT_BYTES)
    archive_all(archive, SEGMENT_BYTES * 3)
    streams.create(Create("fork", fork=ForkRequest("s/0", "-1", 4)), 1_100)
    for path in ("s/0", "s/1", "s/2"):
        streams.delete(path, 1_200)
    _grow(streams, 3)
    while engine.reap(3):
        pass
    seal(engine, None, SEGMENT_BYTES)
    archive_all(archive, SEGMENT_BYTES * 5)
    # Many small files become few, here and there; the old ones go.
    assert compact_once(engine, 64 * SEGMENT_BYTES, archive)
    while engine.reap(3):
        pass
    archive_all(archive, SEGMENT_BYTES * 5)
    # One that is in a file from the beginning, and a part of another.
    streams.create(Create("large", BYTES, b"l" * LARGE_BYTES), 1_250)
    streams.append("s/5", Append(b"l" * LARGE_BYTES, BYTES), 1_251)
    # One that never leaves this machine.
    streams.create(Create("brief", BYTES, b"b" * SEGMENT_BYTES), 1_300)
    seal(engine, None, SEGMENT_BYTES)
    streams.delete("brief", 1_301)
    while engine.reap(3):
        pass
    return streams


def _grow(streams: CommittedStreams, first: int) -> None:
    for seq in range(8):
        for number in range(first, 6):
            stamp = ProducerStamp("p", first, seq)
            body = bytes([number, seq]) * (40 * number + 1)
            streams.append(f"s/{number}", Append(body, BYTES, producer=stamp), 1_001 + seq)


def main() -> None:
    directory, *fatal = sys.argv[1:]
    taken: Counter[str] = Counter()

    def step(name: str) -> None:
        taken[name] += 1
        if [name, str(taken[name])] == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        if not fatal:
            print(name)

    engine = SqliteEngine(Path(directory), step=step)
    live(engine, far_from(Path(directory)))
    engine.close()


if __name__ == "__main__":
    main()
