"""What follows a commit: readers see it, those who asked for it are answered, and it is counted.

In this order. A client that has its answer finds what it wrote, and nobody waits for a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.core.limits import Limits
from headwater.core.stream import Appended
from headwater.service.background import Watch
from headwater.service.batches import Batch, Commit, CommitFigures, Effect, Owner
from headwater.service.entries import Event


class Publishing:
    def __init__(self, limits: Limits, release_hot: Callable[[], None]) -> None:
        self._limits = limits
        self._release_hot = release_hot
        # Called with what was committed, once it is visible, and with what could not be committed.
        self.observers: list[Callable[[Sequence[Effect]], None]] = []
        self.failure_observers: list[Callable[[Sequence[Effect]], None]] = []
        self.watch = Watch("listeners")
        self.figures = CommitFigures()
        self.on_commit: Callable[[Commit], None] | None = None
        """Called after every commit, for tracing."""

    def _publish(self, batch: Batch) -> None:
        appends, appended_bytes, messages = self._show(batch.effects)
        for owner, _ in batch.effects:
            if owner.pending is batch:
                owner.pending = None
        for reply, outcome in batch.waiters:
            reply.settle(outcome)
        if appends:
            figures = self.figures
            figures.appends += appends
            figures.appended_bytes += appended_bytes
            figures.messages += messages
            self._release_hot()

    def _show(self, effects: Sequence[Effect]) -> tuple[int, int, int]:
        """Let readers see it. Returns how many appends that are, their bytes and messages."""
        changed: dict[Owner, None] = {}
        appends = appended_bytes = messages = 0
        for owner, mutation in effects:
            event = owner.publish(mutation, self._limits)
            if event is Event.CHANGED:
                changed[owner] = None
            elif event is Event.DELETED:
                changed.pop(owner, None)
                self._tell(owner.notify, event)
            if isinstance(mutation, Appended):
                appends += 1
                appended_bytes += len(mutation.body)
                messages += mutation.messages
        for owner in changed:
            self._tell(owner.notify, Event.CHANGED)
        for observer in self.observers:
            self._tell(observer, effects)
        return appends, appended_bytes, messages

    def _tell(self, listener: Callable[[Any], None], news: Any) -> None:
        """Call a listener. Its failure must not keep others from being called or answered."""
        try:
            listener(news)
        except Exception as error:
            self.watch.failed(error)

    def _note(self, batch: Batch, took_s: float, *, failed: bool) -> None:
        requests = len(batch.waiters)
        self.figures.seconds.observe(took_s)
        self.figures.batch_requests.observe(requests + batch.acknowledged)
        if self.on_commit is not None:
            self.on_commit(Commit(requests, batch.size_bytes, took_s, failed))
