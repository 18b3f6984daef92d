"""An engine that fails when told to, around one that works.

The faults it can put in:

- **A commit that fails before** anything is stored (`Fault.BEFORE`): a full disk, a lost lock.
- **A commit that fails after** everything is stored (`Fault.AFTER`): the answer got lost on its
  way back, so the engine holds what its caller must report as failed.
- **A commit that takes its time** (`commit_gate`): the commit thread stands at the gate until the
  test opens it, and meanwhile the next batch gathers.
- **A look-up that takes its time** (`gate("append_at")`, any reading method): whoever asks stands
  at the gate, and meanwhile the world moves on. This is how races are made to happen.
- **A look-up that fails** (`fail_reads`).

Faults of commits are chosen one by one (`fail_next`) or by a plan that is asked at each commit.
What reached the inner engine is in `commits`, one list of mutations for each transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

from headwater.core.blocks import Block
from headwater.core.errors import StorageUnavailable
from headwater.core.groups.state import GroupState
from headwater.core.lineage import Span
from headwater.core.live.templates import TemplateRecord
from headwater.core.mutations import AnyMutation
from headwater.core.producers import ProducerState
from headwater.core.snapshots import SnapshotInfo, SnapshotTaken
from headwater.core.stream import Appended
from headwater.core.subscriptions.state import SecretStored, StoredSubscription, StreamTail
from headwater.store.engine import (
    Engine,
    EngineFigures,
    LoadedStream,
    Outline,
    Piece,
    Problem,
    SealedPart,
    SeekBy,
    StreamSummary,
)

# A test that forgets to open a gate fails after this long instead of hanging for ever.
_PATIENCE_S: Final = 60


class Fault(Enum):
    BEFORE = "before anything is stored"
    AFTER = "after everything is stored"


class Gate:
    """Open at first. When it is shut, whoever comes waits until it is opened again."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._arrivals = threading.Semaphore(0)

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if self._open.is_set():
            return
        self._arrivals.release()
        if not self._open.wait(_PATIENCE_S):
            raise StorageUnavailable("a test left a gate shut")

    async def arrival(self) -> None:
        """Wait until one more stands at the gate."""
        loop = asyncio.get_running_loop()
        arrived = await loop.run_in_executor(None, self._arrivals.acquire, True, _PATIENCE_S)
        assert arrived, "nobody came to the gate"


class FaultyEngine:
    def __init__(
        self, inner: Engine, plan: Callable[[int], Fault | None] = lambda number: None
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self.history = inner.history
        self.commit_gate = Gate()
        self.fail_reads: StorageUnavailable | None = None
        self.commits: list[list[AnyMutation]] = []
        self.attempts = 0
        self.plan = plan
        self._next_faults: list[tuple[Fault, Exception]] = []
        self._gates: dict[str, Gate] = {}
        self._removed_gates: list[Gate] = []

    # ── Choosing faults ──────────────────────────────────────────────────────────────────────

    def fail_next(self, fault: Fault, error: Exception | None = None) -> None:
        """Let a coming commit fail; several calls concern several commits."""
        self._next_faults.append((fault, error or StorageUnavailable("as the test wanted")))

    def gate(self, method: str) -> Gate:
        """The gate in front of a reading method."""
        return self._gates.setdefault(method, Gate())

    def remove_gate(self, method: str) -> None:
        """Let everyone pass from now on but those who stand at the gate already."""
        self._removed_gates.append(self._gates.pop(method))

    def open_all_gates(self) -> None:
        for gate in (self.commit_gate, *self._gates.values(), *self._removed_gates):
            gate.open()

    # ── Committing ───────────────────────────────────────────────────────────────────────────

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        self.commit_gate.pass_through()
        self.attempts += 1
        fault, error = self.plan(self.attempts), StorageUnavailable("as planned")
        if self._next_faults:
            fault, error = self._next_faults.pop(0)  # type: ignore[assignment]
        if fault is Fault.BEFORE:
            raise error
        self.inner.commit(mutations)
        self.commits.append(list(mutations))
        self.stored(mutations)
        if fault is Fault.AFTER:
            raise error

    def stored(self, mutations: Sequence[AnyMutation]) -> None:
        """Called when a transaction has been stored, whatever its caller is told."""

    def reap(self, max_appends: int) -> bool:
        return self.inner.reap(max_appends)

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def _before(self, method: str) -> None:
        if (gate := self._gates.get(method)) is not None:
            gate.pass_through()
        if self.fail_reads is not None:
            raise self.fail_reads

    def next_stream_id(self) -> int:
        return self.inner.next_stream_id()

    def next_group_id(self) -> int:
        return self.inner.next_group_id()

    def groups(self, stream_id: int) -> list[GroupState]:
        self._before("groups")
        return self.inner.groups(stream_id)

    def templates(self, stream_id: int) -> list[TemplateRecord]:
        self._before("templates")
        return self.inner.templates(stream_id)

    def next_subscription_id(self) -> int:
        return self.inner.next_subscription_id()

    def subscriptions(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        self._before("subscriptions")
        return self.inner.subscriptions(subscription_id)

    def secrets(self) -> list[SecretStored]:
        self._before("secrets")
        return self.inner.secrets()

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        self._before("tails")
        return self.inner.tails(prefix, after, limit)

    def snapshots(self, stream_id: int) -> list[SnapshotInfo]:
        self._before("snapshots")
        return self.inner.snapshots(stream_id)

    def snapshot(self, stream_id: int, position: int) -> SnapshotTaken | None:
        self._before("snapshot")
        return self.inner.snapshot(stream_id, position)

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        self._before("known_ids")
        return self.inner.known_ids(spans, ids)

    def load(self, path: str) -> LoadedStream | None:
        self._before("load")
        return self.inner.load(path)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        self._before("load_id")
        return self.inner.load_id(stream_id)

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        self._before("producer")
        return self.inner.producer(stream_id, producer_id)

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        self._before("read")
        return self.inner.read(span, max_bytes)

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        self._before("read")
        return self.inner.read_pieces(span, max_bytes)

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        return self.inner.known_pieces(span, max_bytes)

    def blocks(self, span: Span, max_bytes: int) -> list[Block]:
        self._before("read")
        return self.inner.blocks(span, max_bytes)

    def sealed_parts(self, span: Span) -> list[SealedPart]:
        return self.inner.sealed_parts(span)

    def append_at(self, run: int, position: int) -> Appended | None:
        self._before("append_at")
        return self.inner.append_at(run, position)

    def outline_at(self, run: int, position: int) -> Outline | None:
        return self.inner.outline_at(run, position)

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        self._before("seek")
        return self.inner.seek(span, by, value)

    def list_streams(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        self._before("list_streams")
        return self.inner.list_streams(prefix, after, limit)

    def retaining(self, after_id: int, limit: int) -> list[tuple[int, str]]:
        self._before("retaining")
        return self.inner.retaining(after_id, limit)

    def unsettled_from(self, stream_id: int) -> int | None:
        self._before("unsettled_from")
        return self.inner.unsettled_from(stream_id)

    def expired(self, now_ms: int, limit: int) -> list[str]:
        self._before("expired")
        return self.inner.expired(now_ms, limit)

    def next_deadline_ms(self) -> int | None:
        self._before("next_deadline_ms")
        return self.inner.next_deadline_ms()

    def verify(self) -> Iterator[Problem | str]:
        return self.inner.verify()

    def figures(self) -> EngineFigures:
        return self.inner.figures()

    def close(self) -> None:
        self.inner.close()
