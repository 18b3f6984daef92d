"""Acknowledgements that are decided and stored together.

Each is a request of its own, with its own answer. But most of what it costs to decide, store and
commit something does not depend on how many messages it is about.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.groups.decisions import Outcome
from headwater.service.replies import Reply


class Acks:
    def __init__(self) -> None:
        self.requests: list[Sequence[str]] = []
        """The receipts of each request."""
        self._replies: list[Reply[Outcome]] = []

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, receipts: Sequence[str]) -> Reply[Outcome]:
        reply: Reply[Outcome] = Reply()
        self.requests.append(receipts)
        self._replies.append(reply)
        return reply

    def fail(self, error: Exception) -> None:
        for reply in self._replies:
            reply.settle(error)

    def answer_after(self, committed: Reply[list[Outcome]]) -> None:
        """Answer all of them once their outcomes are committed."""
        committed.add_done_callback(self._answer)

    def _answer(self, committed: Reply[list[Outcome]]) -> None:
        error = committed.exception()
        if error is not None:
            self.fail(error)
            return
        for reply, outcome in zip(self._replies, committed.result(), strict=True):
            reply.settle(outcome)
