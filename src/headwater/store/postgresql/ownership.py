"""Who may write: shards, epochs, and the lease of their owner.

- One node owns a shard at a time. The shard's row names the owner, its epoch, and a counter that
  the owner raises three times per lease.
- Who wants a shard that has an owner looks at the counter. If it moves, the owner lives. If it
  stands still for the whole lease of the owner, by the looker's own monotonic clock, the shard may
  be taken: clocks of two machines are never compared.
- Taking a shard raises its epoch. Every transaction that writes begins with the epoch it believes
  in (`fence`) and holds the row while it lasts. So taking waits for the transaction that is under
  way, and lets none of the former owner begin after it.
- An owner that does not know how a commit of its own ended raises its epoch as well, on a new
  connection: after that, the commit has happened or never will.
- An owner that stops in good order leaves the row without an owner, so the next one need not wait.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.store.engine import CannotOpen
from headwater.store.postgresql.database import Connection, LostShard

SHARD: Final = 0
"""The only one so far."""
LEASE_MS: Final = 3_000
_LOOKS_PER_LEASE: Final = 20

Clock = Callable[[], float]


class Seen(NamedTuple):
    """A shard's row."""

    epoch: int
    owner: str | None
    lease_ms: int
    counter: int


class Ownership:
    """What this node owns. All methods may be called from any thread."""

    def __init__(self, lease_ms: int = LEASE_MS, clock: Clock = time.monotonic) -> None:
        self._lease_ms = lease_ms
        self._clock = clock
        self._lock = threading.Lock()
        self.name = f"{socket.gethostname()} (process {os.getpid()}, {secrets.token_hex(4)})"
        self.epoch = 0
        self.good_until = 0.0
        """Until when nobody else can have taken the shard, by this node's own clock."""
        self.is_lost = False

    @property
    def lease_s(self) -> float:
        return self._lease_ms / 1000

    # ── Taking ───────────────────────────────────────────────────────────────────────────────

    def take(
        self, connection: Connection, sleep: Callable[[float], None] = time.sleep
    ) -> str | None:
        """Own the shard; says who was outwaited for it. Raises CannotOpen if the owner lives."""
        seen = _look(connection)
        outwaited = seen.owner
        if seen.owner is not None:
            seen = self._outwait(connection, seen, sleep)
        if not self._claim(connection, seen):
            raise CannotOpen("another node has taken the database at the same moment")
        return outwaited

    def _outwait(self, connection: Connection, seen: Seen, sleep: Callable[[float], None]) -> Seen:
        lease_ms = max(seen.lease_ms, self._lease_ms)
        until = self._clock() + lease_ms / 1000
        while True:
            is_last = self._clock() >= until
            now = _look(connection)
            if now.owner is None:
                return now
            if now != seen:
                raise CannotOpen(f"the database is in use by another node, {now.owner}; stop it")
            if is_last:
                return now
            sleep(lease_ms / 1000 / _LOOKS_PER_LEASE)

    def _claim(self, connection: Connection, seen: Seen) -> bool:
        """Take a shard that is still as it was seen."""
        with self._lock:
            asked = self._clock()
            with connection.transaction():
                if _look(connection, lock=True) != seen:
                    return False
                self._write_owner(connection, seen.epoch + 1)
            self._hold(seen.epoch + 1, asked)
            return True

    # ── Keeping ──────────────────────────────────────────────────────────────────────────────

    def renew(self, connection: Connection) -> None:
        """Show that this node lives. Raises LostShard if it does not own the shard any more."""
        asked = self._clock()
        # By name, not by epoch: this node may be raising its own epoch at this very moment.
        renewed = connection.execute(
            "UPDATE shards SET counter = counter + 1 WHERE id = %s AND owner = %s RETURNING 1",
            (SHARD, self.name),
        ).fetchall()
        if not renewed:
            self.is_lost = True
            raise LostShard
        self.good_until = asked + self.lease_s

    def raise_epoch(self, connection: Connection) -> None:
        """Let nothing that this node began before be committed any more; what is, is."""
        with self._lock:
            asked = self._clock()
            with connection.transaction():
                seen = _look(connection, lock=True)
                # An earlier attempt may have succeeded without our hearing of it.
                if seen.owner != self.name:
                    self.is_lost = True
                    raise LostShard
                self._write_owner(connection, seen.epoch + 1)
            self._hold(seen.epoch + 1, asked)

    def release(self, connection: Connection) -> None:
        """Leave the shard to whoever comes next."""
        connection.execute(
            "UPDATE shards SET owner = NULL WHERE id = %s AND owner = %s", (SHARD, self.name)
        )

    def _write_owner(self, connection: Connection, epoch: int) -> None:
        connection.execute(
            "UPDATE shards SET epoch = %s, owner = %s, lease_ms = %s, counter = counter + 1"
            " WHERE id = %s",
            (epoch, self.name, self._lease_ms, SHARD),
        )

    def _hold(self, epoch: int, asked: float) -> None:
        self.epoch = epoch
        self.good_until = asked + self.lease_s


def _look(connection: Connection, *, lock: bool = False) -> Seen:
    suffix = b" FOR UPDATE" if lock else b""
    found = connection.execute(
        b"SELECT epoch, owner, lease_ms, counter FROM shards WHERE id = %s" + suffix, (SHARD,)
    ).fetchall()
    return Seen(*found[0])
