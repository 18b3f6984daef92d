"""The writer: one commit for everything that is waiting, over all streams.

Decisions are made on the event loop, one after the other, against states that run ahead of the
disk. Their mutations gather in a batch. A thread commits one batch at a time as one engine
transaction while the next one gathers: the slower the disk, the larger the batches, without a
timer. (A `linger_ms` may be set to wait for company even when the disk is free.) What nobody waits
for starts no commit by itself: it goes with the next one, or after a moment.

Handing a batch to the thread and back takes about as long as a quick commit. Whoever is alone here
and writes one thing after the other is spared that: the loop commits by itself, as long as commits
are quick. It could hold up nobody else.

Only after the commit is anything visible or answered: tails are published, readers wake, requests
get their replies. That holds for replies that changed nothing too. "You sent that before" or "the
stream is closed" may rest on something that is still on its way to the disk, so such an answer
waits for it.

An exception is what a stream with relaxed durability takes: it is answered at once, and committed
as if somebody waited for it; see `headwater.core.durability`.

When a commit fails, everything in the batch fails, and so does everything gathered meanwhile,
because it was decided on top of it. The states concerned are dropped and reloaded from the
engine. Nothing of it was ever visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog

from headwater.core import histograms
from headwater.core.errors import (
    OutcomeUnknown,
    StorageFull,
    StorageUnavailable,
    StreamError,
    TooBusy,
)
from headwater.core.limits import Limits
from headwater.core.mutations import GROWING, AnyMutation
from headwater.core.stream import Appended
from headwater.service.background import Watch
from headwater.service.commit_thread import CommitThread
from headwater.service.entries import Event
from headwater.service.replies import Reply
from headwater.store.engine import Engine

R = TypeVar("R")


class Owner(Protocol):
    """Whose state a mutation changes: a stream's entry, a group, a subscription.

    Whoever inherits from this says only what it does differently from nothing.
    """

    pending: object | None = None
    """The last batch with something of its own in it, until that is committed."""

    def apply(self, mutation: Any) -> None:
        """Let the state that decisions build on run ahead."""
        return

    def publish(self, mutation: Any, limits: Limits) -> Event | None:
        """The mutation is committed: let readers see it."""
        return None

    def notify(self, event: Event) -> None:
        """Tell those who listen."""
        return

    def forget_state(self) -> None:
        """A commit failed: what was decided since is void."""
        return


Effect = tuple[Owner, AnyMutation]
Waiter = tuple[Reply[Any], Any]

# What a queued mutation costs in addition to its body, so a flood of tiny ones is bounded too.
_MUTATION_BYTES: Final = 512
_DEFERRED_MAX_S: Final = 0.01
QUICK_S: Final = 0.0005
QUICK_IN_A_ROW: Final = 32

log = structlog.get_logger()


class CommitFigures:
    """What the writer has done since the start, for those who watch it."""

    __slots__ = ("appended_bytes", "appends", "batch_requests", "messages", "seconds")

    def __init__(self) -> None:
        self.appends = 0
        self.appended_bytes = 0
        self.messages = 0
        self.batch_requests = histograms.Histogram(histograms.COUNTS)
        self.seconds = histograms.Histogram(histograms.SECONDS)


class Commit(NamedTuple):
    """A commit that is over."""

    requests: int
    size_bytes: int
    took_s: float
    failed: bool


class Batch:
    """What will be committed together, and who waits for it."""

    __slots__ = ("acknowledged", "effects", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.acknowledged = 0
        """Requests in it that were answered before the commit."""
        self.effects: list[Effect] = []
        self.waiters: list[Waiter] = []
        self.size_bytes = 0


class Writer:
    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        linger_ms: int = 0,
        release_hot: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._linger_s = linger_ms / 1000
        self._release_hot = release_hot
        self._loop = asyncio.get_running_loop()
        self._gathering = Batch()
        self._committing: Batch | None = None
        self._flush_planned = False
        self._deferred: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        # Called with what was committed, after it is visible, and with what could not be.
        self.observers: list[Callable[[Sequence[Effect]], None]] = []
        self.failure_observers: list[Callable[[Sequence[Effect]], None]] = []
        self.failures = 0
        self.watch = Watch("listeners")
        self.full = False
        """Nothing that grows can be stored."""
        self.figures = CommitFigures()
        self.admit: Callable[[Sequence[Effect]], None] | None = None
        """Asked before anything is queued; raises the reason why not."""
        self.on_commit: Callable[[Commit], None] | None = None
        """Told of every commit, for tracing."""
        self.is_alone: Callable[[], bool] | None = None
        """Whether no more than one client is there; asked if the engine commits on this machine."""
        self._quick_commits = 0
        """How many in a row, of one request at most each."""
        self.queued_bytes = 0
        self.thread = CommitThread()

    # ── Taking work ──────────────────────────────────────────────────────────────────────────

    def submit(self, effects: Sequence[Effect], reply: R, body_bytes: int = 0) -> Reply[R]:
        """Queue decided mutations; the reply comes when they are committed."""
        batch = self._gather(effects, body_bytes)
        self._plan_flush()
        return self._wait_for(batch, reply)

    def submit_relaxed(self, effects: Sequence[Effect], reply: R, body_bytes: int = 0) -> Reply[R]:
        """Queue decided mutations like `submit`, but have the reply at once."""
        self._gather(effects, body_bytes).acknowledged += 1
        self._plan_flush()
        return Reply(reply)

    def defer(self, effects: Sequence[Effect]) -> None:
        """Queue mutations that nobody waits for."""
        self._gather(effects, 0)
        self._plan_deferred()

    def _gather(self, effects: Sequence[Effect], body_bytes: int) -> Batch:
        if self._closed:
            raise StorageUnavailable("the server is shutting down; try again")
        if self.full and any(isinstance(mutation, GROWING) for _, mutation in effects):
            self.full = not self._engine.has_room()
            if self.full:
                raise StorageFull
        size = _MUTATION_BYTES * len(effects) + body_bytes
        # Into an empty queue goes anything: a body may be as large as the queue by itself.
        if self.queued_bytes and self.queued_bytes + size > self._limits.queue_bytes_max:
            raise TooBusy
        if self.admit is not None:
            self.admit(effects)
        batch = self._gathering
        self.queued_bytes += size
        for owner, mutation in effects:
            owner.apply(mutation)
            owner.pending = batch
        batch.effects.extend(effects)
        batch.size_bytes += size
        return batch

    def reply_after(self, owner: Owner, reply: R) -> Reply[R]:
        """Answer without a change, but not before what the answer rests on is committed."""
        if isinstance(owner.pending, Batch):
            self._plan_flush()
            return self._wait_for(owner.pending, reply)
        return Reply(reply)

    def reply_after_all(self, reply: R) -> Reply[R]:
        """Answer without a change, but not before everything that is queued now is committed."""
        gathering = self._gathering
        batch = gathering if gathering.waiters or gathering.effects else self._committing
        if batch is not None:
            self._plan_flush()
            return self._wait_for(batch, reply)
        return Reply(reply)

    def fail_after(self, owner: Owner, error: StreamError) -> Reply[Any]:
        """Refuse, but not before what the refusal rests on is committed."""
        return self.reply_after(owner, error)

    def _wait_for(self, batch: Batch, outcome: R) -> Reply[R]:
        reply: Reply[R] = Reply()
        batch.waiters.append((reply, outcome))
        return reply

    # ── Committing ───────────────────────────────────────────────────────────────────────────

    def _plan_flush(self) -> None:
        if self._committing is not None or self._flush_planned:
            return
        self._flush_planned = True
        self._idle.clear()
        if self._deferred is not None:
            self._deferred.cancel()
            self._deferred = None
        if self._linger_s:
            self._loop.call_later(self._linger_s, self._flush)
        else:
            # Not at once: whatever else this turn of the loop brings goes into the same commit.
            self._loop.call_soon(self._flush)

    def _plan_deferred(self) -> None:
        if self._committing is None and not self._flush_planned and self._deferred is None:
            self._idle.clear()
            self._deferred = self._loop.call_later(_DEFERRED_MAX_S, self._plan_flush)

    def _flush(self) -> None:
        self._flush_planned = False
        batch, self._gathering = self._gathering, Batch()
        self._committing = batch
        if self._is_best_done_here(batch):
            self._finish(batch, *self._commit(batch))
        else:
            self.thread.put(lambda: self._commit_and_tell(batch))

    def _is_best_done_here(self, batch: Batch) -> bool:
        return (
            self._quick_commits >= QUICK_IN_A_ROW
            and len(batch.waiters) == 1
            and self.thread.is_idle
            and self.is_alone is not None
            and self.is_alone()
        )

    def _commit(self, batch: Batch) -> tuple[Exception | None, float]:
        """What went wrong, if anything, and how long it took."""
        error: Exception | None = None
        began = perf_counter()
        try:
            self._engine.commit([mutation for _, mutation in batch.effects])
        except Exception as failure:
            error = failure
        return error, perf_counter() - began

    def _commit_and_tell(self, batch: Batch) -> None:
        """On the commit thread."""
        error, took_s = self._commit(batch)
        # Without a loop the process is going down, and nobody is left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, batch, error, took_s)

    def _finish(self, batch: Batch, error: Exception | None, took_s: float) -> None:
        self._committing = None
        is_quick = took_s < QUICK_S and len(batch.waiters) <= 1
        self._quick_commits = self._quick_commits + 1 if is_quick else 0
        self.figures.seconds.observe(took_s)
        self.figures.batch_requests.observe(len(batch.waiters) + batch.acknowledged)
        self.queued_bytes -= batch.size_bytes
        if error is None:
            self._publish(batch.effects)
            for owner, _ in batch.effects:
                if owner.pending is batch:
                    owner.pending = None
            for reply, outcome in batch.waiters:
                reply.settle(outcome)
        else:
            self._fail(batch, error)
        if self._gathering.waiters or self._gathering.acknowledged:
            self._plan_flush()
        elif self._gathering.effects:
            self._plan_deferred()
        else:
            self._idle.set()
        if self.on_commit is not None:
            failed = error is not None
            self.on_commit(Commit(len(batch.waiters), batch.size_bytes, took_s, failed))

    def _publish(self, effects: Sequence[Effect]) -> None:
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
        self._count(appends, appended_bytes, messages)
        for owner in changed:
            self._tell(owner.notify, Event.CHANGED)
        for observer in self.observers:
            self._tell(observer, effects)
        if appends:
            self._release_hot()

    def _tell(self, listener: Callable[[Any], None], news: Any) -> None:
        """What is wrong with one who is told must not keep others from being told, or answered."""
        try:
            listener(news)
        except Exception as error:
            self.watch.failed(error)

    def _count(self, appends: int, appended_bytes: int, messages: int) -> None:
        figures = self.figures
        figures.appends += appends
        figures.appended_bytes += appended_bytes
        figures.messages += messages

    def _fail(self, batch: Batch, error: Exception) -> None:
        self.failures += 1
        self.full = full = isinstance(error, StorageFull)
        gathered, self._gathering = self._gathering, Batch()
        self.queued_bytes -= gathered.size_bytes
        for owner, _ in (*batch.effects, *gathered.effects):
            owner.forget_state()
            owner.pending = None
        for failed in (batch, gathered):
            for observer in self.failure_observers:
                self._tell(observer, failed.effects)
        # Not before all of that is forgotten: whoever is told may try again at once.
        refusal = StorageFull if full else StorageUnavailable
        for reply, _ in batch.waiters:
            reply.settle(OutcomeUnknown() if isinstance(error, OutcomeUnknown) else refusal())
        # This was never sent, so it is certain that nothing of it is stored.
        for reply, _ in gathered.waiters:
            reply.settle(refusal())
        # Last, because the log may be on the disk that is full.
        with suppress(OSError, ValueError):
            log.error(
                "commit_failed",
                error=str(error),
                requests=len(batch.waiters),
                acknowledged=batch.acknowledged + gathered.acknowledged,
            )

    # ── Other work of the commit thread, and the end ─────────────────────────────────────────

    async def run(self, work: Callable[[], R]) -> R:
        """Do something between two commits, on the thread that owns the write connection."""
        return await self.thread.run(work)

    async def drain(self) -> None:
        """Take nothing more, and finish what was taken."""
        self._closed = True
        await self._idle.wait()
        await self.thread.stop()
