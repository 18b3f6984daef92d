"""The committer of a SQLite database: `python -m headwater.store.sqlite.committer DATABASE`.

It has a connection of its own to the database. The lock of the data directory is inherited, so no
other server can start while a committer that has lost its server is still at work.
"""

from __future__ import annotations

import gc
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec
from msgspec.structs import replace

from headwater.core.errors import OutcomeUnknown
from headwater.core.groups.mutations import (
    GroupAdvanced,
    MemberAbsent,
    MemberReturned,
    MessagesLeased,
    MessagesMarked,
    MessagesSettled,
)
from headwater.core.limits import KIB
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Closed, ProducerAdvanced, Touched, TrimPlanned
from headwater.store.engine.committer import ANSWER, LENGTH, Answer
from headwater.store.garbage import Collector
from headwater.store.history.large_appends import (
    LARGE_BYTES,
    can_all_be_chosen,
    has_any,
    is_large,
)
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.sqlite.commits import Commits
from headwater.store.sqlite.database import connect, set_up_writer
from headwater.store.sqlite.filing import FILES_MAX, Filing
from headwater.store.sqlite.history import SqliteHistory
from headwater.store.sqlite.shared_bodies import BorrowedBodies, SharedBodies

# What comes often. None of it releases positions, which is for the collector of the engine.
_Frequent = (
    Appended
    | Closed
    | ProducerAdvanced
    | Touched
    | TrimPlanned
    | GroupAdvanced
    | MessagesLeased
    | MessagesMarked
    | MessagesSettled
    | MemberAbsent
    | MemberReturned
)
_FREQUENT: Final = frozenset(_Frequent.__args__)
# Larger batches of small mutations are not worth copying to another process.
_SMALL_BYTES_MAX: Final = 512 * KIB


class Batch(msgspec.Struct, array_like=True, gc=False):
    mutations: Sequence[_Frequent]
    bodies: Sequence[tuple[int, int]] = ()
    """Which of the mutations have their bodies in shared memory, and the sizes of these."""
    segment_ids: Sequence[int] = ()
    """For the files that they go into."""


encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Batch).decode


class SqliteCommitter:
    def __init__(
        self,
        path: Path,
        lock: int,
        history: SqliteHistory,
        committed: Callable[[Sequence[AnyMutation], float], None],
        ended: Callable[[Sequence[AnyMutation]], None],
        is_healthy: Callable[[], bool],
    ) -> None:
        self._path = path.absolute()
        self._lock = lock
        self._history = history
        self._bodies = SharedBodies()
        self.committed = committed
        self.ended = ended
        self._is_healthy = is_healthy

    @property
    def command(self) -> Sequence[str]:
        shared = self._bodies.descriptor()
        return (sys.executable, "-P", "-m", __name__, str(self._path), str(shared or ""))

    @property
    def descriptors(self) -> Sequence[int]:
        shared = self._bodies.descriptor()
        return (self._lock,) if shared is None else (self._lock, shared)

    def encode(self, mutations: Sequence[AnyMutation], size_bytes: int) -> bytes | None:
        if not _FREQUENT.issuperset(map(type, mutations)) or not self._is_healthy():
            return None
        frequent = cast(Sequence[_Frequent], mutations)
        # No append is larger than its batch, so there is rarely anything to look at.
        if size_bytes < LARGE_BYTES:
            return encode(Batch(frequent))
        appends = [one for one in frequent if isinstance(one, Appended)]
        if has_any(appends):
            return self._encode_large(frequent, appends, size_bytes)
        return encode(Batch(frequent)) if size_bytes <= _SMALL_BYTES_MAX else None

    def _encode_large(
        self, mutations: Sequence[_Frequent], appends: Sequence[Appended], size_bytes: int
    ) -> bytes | None:
        """With the bodies of large appends in shared memory, if all of these go into a file."""
        if not can_all_be_chosen(appends, self._history.ledger.with_rows):
            return None
        bodies = [
            (place, one.body)
            for place, one in enumerate(mutations)
            if isinstance(one, Appended) and is_large(one)
        ]
        sizes = [(place, len(body)) for place, body in bodies]
        rest_bytes = size_bytes - sum([size for _, size in sizes])
        if rest_bytes > _SMALL_BYTES_MAX or not self._bodies.put([body for _, body in bodies]):
            return None
        light = list(mutations)
        for place, _ in bodies:
            light[place] = replace(light[place], body=b"")
        return encode(Batch(light, sizes, [self._history.new_id() for _ in range(FILES_MAX)]))

    def close(self) -> None:
        self._bodies.close()


class _LeftToEngine(Exception):
    """A batch with a large append that has to go into a row."""


def main(path: Path, shared: str = "") -> None:
    # The server decides when this ends, whoever else is told to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=sys.stdin.fileno())
    write = connect(path)
    set_up_writer(write)
    # The log is the server's to clear away, even if this connection seems to be the last.
    write.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    commits = Commits(write, Collector())
    bodies = BorrowedBodies(int(shared)) if shared else None
    work = _Work(path, write, commits, bodies)
    gc.freeze()
    # If the outcome of a batch is unknown, no answer says so.
    with suppress(ConnectionError, OutcomeUnknown), channel.makefile("rb") as batches:
        channel.sendall(ANSWER.pack(Answer.READY, 0))
        while length := batches.read(LENGTH.size):
            batch = batches.read(*LENGTH.unpack(length))
            channel.sendall(ANSWER.pack(_carry_out(work, batch), commits.sync_s))
    write.close()


class _Work:
    """What batches are carried out with."""

    def __init__(
        self,
        path: Path,
        write: apsw.Connection,
        commits: Commits,
        bodies: BorrowedBodies | None,
    ) -> None:
        self._segment_ids: list[int] = []
        self._commits = commits
        self._bodies = bodies
        self._filing = Filing(
            path.parent / DIRECTORY_NAME,
            lambda sql, values: write.execute(sql, values).fetchall(),
            self._new_id,
        )

    def _new_id(self) -> int:
        return self._segment_ids.pop()

    def carry_out(self, batch: Batch) -> None:
        if batch.bodies:
            self._carry_out_large(batch)
        else:
            self._commits.commit(batch.mutations)

    def _carry_out_large(self, batch: Batch) -> None:
        assert self._bodies is not None
        mutations: list[AnyMutation] = list(batch.mutations)
        places, sizes = zip(*batch.bodies, strict=True)
        for place, body in zip(places, self._bodies.look_at(sizes), strict=True):
            mutations[place] = replace(mutations[place], body=body)
        appends = [one for one in mutations if isinstance(one, Appended)]
        if not can_all_be_chosen(appends, self._filing.with_rows):
            raise _LeftToEngine
        self._segment_ids = list(batch.segment_ids)
        with self._filing.of(appends) as drafts:
            self._commits.commit(mutations, drafts)


def _carry_out(work: _Work, batch: bytes) -> Answer:
    try:
        work.carry_out(_decode(batch))
    except (apsw.Error, OSError, msgspec.MsgspecError, _LeftToEngine):
        return Answer.FAILED
    return Answer.DONE


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
