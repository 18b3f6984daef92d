"""Which worker runs which test (`make test`; `turns` sets the order of the tests).

* Spark tests that share a session go to one worker, one after the other. Those that start their own
  Spark go to another: two at once is as much as two cores can take.
* All other tests are handed out in chunks, because neighbours share servers and data. Chunks are
  small at both ends: at the start because the longest tests come first, at the end so that no
  worker has much left when the others are done. They end at the end of a file if one is near.

A worker looks at the next test before it runs one, so it always holds two.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

SPARK: Final = "tests/spark/"
OWN_SPARK: Final = frozenset(
    f"{SPARK}test_{name}.py"
    for name in ("cluster", "connect", "crashes", "declarative", "object_store", "orders", "up")
)
_HELD: Final = 2
_CHUNKS_PER_WORKER: Final = 8


class Schedule(LoadScheduling):  # type: ignore[misc]  # it has no types
    collection: list[str] | None
    pending: list[int]

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._lanes: tuple[list[int], list[int]] = ([], [])
        self._owners: dict[int, WorkerController] = {}
        self._handed_out = 0

    @property
    def tests_finished(self) -> bool:
        return not any(self._lanes) and bool(super().tests_finished)

    @property
    def has_pending(self) -> bool:
        return any(self._lanes) or bool(super().has_pending)

    def schedule(self) -> None:
        if self.collection is None:
            if not self._check_nodes_have_same_collection():
                return
            self.collection = next(iter(self.node2collection.values()))
            self._sort(self.collection)
        if self.collection:
            for node in self.nodes:
                self.check_schedule(node)

    def _sort(self, tests: list[str]) -> None:
        for index, test in enumerate(tests):
            if test.startswith(SPARK):
                self._lanes[_file(test) in OWN_SPARK].append(index)
            else:
                self.pending.append(index)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:
        held = self.node2pending[node]
        while not node.shutting_down and len(held) < _HELD:
            if chunk := self._next(node):
                held.extend(chunk)
                node.send_runtest_some(chunk)
            else:
                node.shutdown()

    def _next(self, node: WorkerController) -> list[int]:
        for number, lane in enumerate(self._lanes):
            if lane and self._owner(number, node) is node:
                return [lane.pop(0)]
        size = 1 + min(len(self.pending), self._handed_out) // (
            _CHUNKS_PER_WORKER * len(self.nodes)
        )
        end = self._end_of_file(size)
        chunk, self.pending[:end] = self.pending[:end], []
        self._handed_out += len(chunk)
        return chunk

    def _end_of_file(self, size: int) -> int:
        """Where to end a chunk of about that size so that no file is split."""
        tests = self.collection or []
        files = [_file(tests[index]) for index in self.pending[size - 1 : 2 * size]]
        return next((size + n for n, two in enumerate(pairwise(files)) if two[0] != two[1]), size)

    def _owner(self, lane: int, who: WorkerController) -> WorkerController:
        """The worker that asked for it first, as long as it lives."""
        if self._owners.get(lane) not in self.node2pending:
            self._owners[lane] = who
        return self._owners[lane]


def _file(test: str) -> str:
    return test.partition("::")[0]
