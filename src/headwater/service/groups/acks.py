"""Acknowledgements that are decided and stored together.

Each is a request of its own, with its own answer. But most of what it costs to decide, store and
commit something does not depend on how many messages it is about.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.groups.decisions import Outcome
from headwater.service.replies import Reply, Waiter


class Acks:
    def __init__(self) -> None:
        self.requests: list[Sequence[str]] = []
        """The receipts of each request."""
        self._waiters: list[Waiter] = []

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, receipts: Sequence[str], waiter: Waiter) -> None:
        self.requests.append(receipts)
        self._waiters.append(waiter)

    def fail(self, error: Exception) -> None:
        for waiter in self._waiters:
            waiter.settle(error)

    def answer_after(self, committed: Reply[list[Outcome]]) -> None:
        """Answer all of them once their outcomes are committed."""
        committed.add_done_callback(self._answer)

    def _answer(self, committed: Reply[list[Outcome]]) -> None:
        error = committed.exception()
        if error is not None:
            self.fail(error)
            return
        for waiter, outcome in zip(self._waiters, committed.result(), strict=True):
            waiter.settle(outcome)
