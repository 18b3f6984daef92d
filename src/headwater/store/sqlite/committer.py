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
from typing import Final

import apsw
import msgspec

from headwater.core.errors import OutcomeUnknown
from headwater.core.groups.mutations import (
    GroupAdvanced,
    MemberAbsent,
    MemberReturned,
    MessagesLeased,
    MessagesMarked,
    MessagesSettled,
)
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Closed, ProducerAdvanced, Touched, TrimPlanned
from headwater.store.engine.committer import ANSWER, LENGTH, Answer
from headwater.store.garbage import Collector
from headwater.store.history.large_appends import LARGE_BYTES, has_any
from headwater.store.sqlite.commits import Commits
from headwater.store.sqlite.database import connect, set_up_writer

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

encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[_Frequent]).decode


class SqliteCommitter:
    def __init__(
        self,
        path: Path,
        lock: int,
        committed: Callable[[Sequence[AnyMutation], float], None],
        ended: Callable[[Sequence[AnyMutation]], None],
        is_healthy: Callable[[], bool],
    ) -> None:
        self.command = (sys.executable, "-P", "-m", __name__, str(path.absolute()))
        self.descriptors = (lock,)
        self.committed = committed
        self.ended = ended
        self._is_healthy = is_healthy

    def encode(self, mutations: Sequence[AnyMutation]) -> bytes | None:
        if not _FREQUENT.issuperset(map(type, mutations)) or not self._is_healthy():
            return None
        batch = encode(mutations)
        # No append is larger than the batch, so there is rarely anything to look at.
        if len(batch) >= LARGE_BYTES:
            appends = [one for one in mutations if isinstance(one, Appended)]
            if has_any(appends):
                # The engine writes large ones into files.
                return None
        return batch


def main(path: Path) -> None:
    # The server decides when this ends, whoever else is told to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=sys.stdin.fileno())
    write = connect(path)
    set_up_writer(write)
    # The log is the server's to clear away, even if this connection seems to be the last.
    write.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    commits = Commits(write, Collector())
    gc.freeze()
    # If the outcome of a batch is unknown, no answer says so.
    with suppress(ConnectionError, OutcomeUnknown), channel.makefile("rb") as batches:
        channel.sendall(ANSWER.pack(Answer.READY, 0))
        while length := batches.read(LENGTH.size):
            batch = batches.read(*LENGTH.unpack(length))
            channel.sendall(ANSWER.pack(_carry_out(commits, batch), commits.sync_s))
    write.close()


def _carry_out(commits: Commits, batch: bytes) -> Answer:
    try:
        commits.commit(_decode(batch))
    except (apsw.Error, msgspec.MsgspecError):
        return Answer.FAILED
    return Answer.DONE


if __name__ == "__main__":
    main(Path(sys.argv[1]))
