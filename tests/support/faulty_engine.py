"""An engine that fails on demand, wrapped around one that works.

The faults it can inject:

- **A commit that fails before** anything is stored (`Fault.BEFORE`): a full disk, a lost lock.
- **A commit that fails after** everything is stored (`Fault.AFTER`): the answer got lost on its way
  back, so the engine holds what its caller must report as failed.
- **A slow commit** (`commit_gate`): the commit thread waits at the gate until the test opens it,
  and meanwhile the next batch gathers.
- **A slow look-up** (`gate("append_at")`, any reading method): the caller waits at the gate, and
  meanwhile the world moves on. This is how tests produce races.
- **A look-up that fails** (`fail_reads`).

Faults of commits are chosen one by one (`fail_next`) or by a plan that is consulted at each commit.
What reached the inner engine is in `commits`, one list of mutations for each transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, cast

from headwater.core.errors import StorageUnavailable
from headwater.core.mutations import AnyMutation
from headwater.store.engine import Engine, Groups, Problem, Snapshots, Subscriptions, Templates
from headwater.store.engine.appends import Appends
from headwater.store.engine.figures import EngineFigures
from headwater.store.engine.streams import Streams

# A test that forgets to open a gate fails after this long instead of hanging for ever.
_PATIENCE_S: Final = 60
_UNGATED: Final = {"next_id", "known_pieces", "sealed_extents", "outline_at"}
_READS: Final = {"read_pieces": "read", "blocks": "read"}


class Fault(Enum):
    BEFORE = "before anything is stored"
    AFTER = "after everything is stored"


class Gate:
    """Open at first. While it is shut, callers wait until it is opened again."""

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
        """Wait until one more caller is at the gate."""
        loop = asyncio.get_running_loop()
        arrived = await loop.run_in_executor(None, self._arrivals.acquire, True, _PATIENCE_S)
        assert arrived, "nobody came to the gate"


class _Gated:
    """An aggregate of the inner engine, which tests may replace; each method has a gate."""

    def __init__(
        self,
        engine: FaultyEngine,
        aggregate: str,
        ungated: Collection[str],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._aggregate = aggregate
        self._ungated = ungated
        self._names = names

    def __getattr__(self, method: str) -> Callable[..., Any]:
        aggregate = getattr(self._engine.inner, self._aggregate)
        inner: Callable[..., Any] = getattr(aggregate, method)
        if method in self._ungated:
            return inner

        def gated(*arguments: object) -> Any:
            self._engine.before(self._names.get(method, method))
            return inner(*arguments)

        return gated


class FaultyEngine:
    def __init__(
        self, inner: Engine, plan: Callable[[int], Fault | None] = lambda number: None
    ) -> None:
        self.inner = inner
        self.name = inner.name
        self.history = inner.history
        self.lease = inner.lease
        self.membership = inner.membership
        self.committer = None
        self.commit_gate = Gate()
        self.fail_reads: StorageUnavailable | None = None
        self.commits: list[list[AnyMutation]] = []
        self.attempts = 0
        self.plan = plan
        self._next_faults: list[tuple[Fault, Exception]] = []
        self._gates: dict[str, Gate] = {}
        self._removed_gates: list[Gate] = []
        self.streams = cast(Streams, _Gated(self, "streams", _UNGATED))
        self.appends = cast(Appends, _Gated(self, "appends", _UNGATED, _READS))
        self.groups = cast(Groups, _Gated(self, "groups", _UNGATED, {"of_stream": "groups"}))
        self.subscriptions = cast(
            Subscriptions,
            _Gated(self, "subscriptions", _UNGATED, {"load": "subscriptions"}),
        )
        self.templates = cast(
            Templates, _Gated(self, "templates", _UNGATED, {"of_stream": "templates"})
        )
        self.snapshots = cast(
            Snapshots,
            _Gated(
                self,
                "snapshots",
                _UNGATED,
                {"of_stream": "snapshots", "find": "snapshot"},
            ),
        )

    # ── Choosing faults ──────────────────────────────────────────────────────────────────────

    def fail_next(self, fault: Fault, error: Exception | None = None) -> None:
        """Make a future commit fail; several calls affect several commits."""
        self._next_faults.append((fault, error or StorageUnavailable("as the test wanted")))

    def gate(self, method: str) -> Gate:
        """The gate in front of a reading method."""
        return self._gates.setdefault(method, Gate())

    def remove_gate(self, method: str) -> None:
        """Let everyone pass from now on, except those already waiting at the gate."""
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

    def has_room(self) -> bool:
        return self.inner.has_room()

    def reap(self, max_appends: int) -> bool:
        return self.inner.reap(max_appends)

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def before(self, method: str) -> None:
        if (gate := self._gates.get(method)) is not None:
            gate.pass_through()
        if self.fail_reads is not None:
            raise self.fail_reads

    def verify(self) -> Iterator[Problem | str]:
        return self.inner.verify()

    def figures(self) -> EngineFigures:
        return self.inner.figures()

    def close(self) -> None:
        self.inner.close()
