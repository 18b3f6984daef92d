"""The writer: one commit for everything that is waiting, over all streams.

Decisions are made on the event loop, one after the other, against states that are ahead of the
disk. Their mutations gather in a batch. A thread commits one batch at a time as one engine
transaction while the next one gathers: the slower the disk, the larger the batches, without a
timer. (`linger_ms` makes it wait for more even when the disk is free.) Mutations that nobody waits
for do not start a commit: they go with the next one, or after a short delay.

Handing a batch to the thread and back takes about as long as a quick commit. If only one client is
connected and writes one thing after another, the loop commits by itself, as long as commits are
quick. That holds up nobody else.

Only after the commit is anything visible or answered: tails are published, readers wake, requests
get their replies. That includes replies that changed nothing: "you sent that before" or "the stream
is closed" may depend on something not yet on disk, so such a reply waits for it.

The exception is a stream with relaxed durability: its appends are answered at once, and committed
as if somebody waited for them; see `headwater.core.durability`.

When a commit fails, everything in the batch fails, and so does everything gathered meanwhile,
because it was decided on top of it. The states concerned are dropped and reloaded from the engine.
No reader has seen any of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

import structlog

from headwater.core.errors import (
    OutcomeUnknown,
    StorageFull,
    StorageUnavailable,
    StreamError,
    TooBusy,
)
from headwater.core.limits import KIB, Limits
from headwater.core.mutations import GROWING
from headwater.core.stream import Appended
from headwater.service.batches import Batch, Effect, Owner
from headwater.service.commit_thread import CommitThread
from headwater.service.committer import CommitProcess
from headwater.service.pace import Pace
from headwater.service.publishing import Publishing
from headwater.service.replies import Reply, Waiter
from headwater.store.engine import Engine
from headwater.store.engine.committer import Answer

R = TypeVar("R")


# The cost of a queued mutation on top of its body, so that a flood of tiny ones is bounded too.
_MUTATION_BYTES: Final = 512
# Larger ones take longer than what is quick.
_HERE_BYTES_MAX: Final = 64 * KIB
# What nobody waits for waits once or twice as long.
_DEFERRED_S: Final = 0.005

log = structlog.get_logger()


class Writer(Publishing):
    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        linger_ms: int = 0,
        release_hot: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(limits, release_hot)
        self._engine = engine
        self._linger_s = linger_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._gathering = Batch()
        self._committing: Batch | None = None
        self._flush_planned = False
        self._deferred: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.failures = 0
        self.full = False
        """Whether the disk is full: nothing that takes space can be stored."""
        self.admit: Callable[[Sequence[Effect]], None] | None = None
        """Called before anything is queued; raises to refuse it."""
        self.is_alone: Callable[[], bool] | None = None
        """Whether at most one client is connected; used if the engine commits on this machine."""
        self._pace = Pace()
        self.queued_bytes = 0
        self.thread = CommitThread()
        self.process: CommitProcess | None = None
        """What commits most batches, if it was started."""

    # ── Taking work ──────────────────────────────────────────────────────────────────────────

    def submit(self, effects: Sequence[Effect], reply: R, body_bytes: int = 0) -> Reply[R]:
        """Queue decided mutations; the reply is settled when they are committed."""
        batch = self._gather(effects, body_bytes)
        self._plan_flush()
        return self._wait_for(batch, reply)

    def submit_append(self, owner: Owner, append: Appended, waiter: Waiter) -> bool:
        """The same for a single append, which the waiter is settled with.

        False if nothing was queued, because of something that only `submit` takes care of.
        """
        size = _MUTATION_BYTES + len(append.body)
        queued = self.queued_bytes + size
        if (
            self._closed
            or self.full
            or self.admit is not None
            or queued > self._limits.queue_bytes_max
        ):
            return False
        batch = self._gathering
        self.queued_bytes = queued
        owner.apply(append)
        owner.pending = batch
        batch.effects.append((owner, append))
        batch.waiters.append((waiter, append))
        batch.size_bytes += size
        if self._committing is None and not self._flush_planned:
            if self._is_best_done_here(batch):
                # Nothing else can join it.
                self._commit_here()
            else:
                self._plan_flush()
        return True

    def submit_relaxed(self, effects: Sequence[Effect], reply: R, body_bytes: int = 0) -> Reply[R]:
        """Queue decided mutations like `submit`, but settle the reply at once."""
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
        # An empty queue takes anything: a single body may be as large as the queue.
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
        """Answer without a change, but only after what the answer depends on is committed."""
        if isinstance(owner.pending, Batch):
            self._plan_flush()
            return self._wait_for(owner.pending, reply)
        return Reply(reply)

    def reply_after_all(self, reply: R) -> Reply[R]:
        """Answer without a change, but only after everything queued now is committed."""
        gathering = self._gathering
        batch = gathering if gathering.waiters or gathering.effects else self._committing
        if batch is not None:
            self._plan_flush()
            return self._wait_for(batch, reply)
        return Reply(reply)

    def fail_after(self, owner: Owner, error: StreamError) -> Reply[Any]:
        """Refuse, but only after what the refusal depends on is committed."""
        return self.reply_after(owner, error)

    def _wait_for(self, batch: Batch, outcome: R) -> Reply[R]:
        reply: Reply[R] = Reply()
        batch.waiters.append((reply, outcome))
        return reply

    # ── Committing ───────────────────────────────────────────────────────────────────────────

    def _plan_flush(self) -> None:
        if self._committing is not None or self._flush_planned:
            return
        self._begin_flush()
        if self._linger_s:
            self._loop.call_later(self._linger_s, self._flush)
        else:
            # Not at once: whatever else this turn of the loop brings joins the same commit.
            self._loop.call_soon(self._flush)

    def _begin_flush(self) -> None:
        self._flush_planned = True
        self._idle.clear()

    def _plan_deferred(self) -> None:
        if self._committing is None and not self._flush_planned:
            self._idle.clear()
            if self._deferred is None:
                batch = self._gathering
                self._deferred = self._loop.call_later(_DEFERRED_S, self._flush_deferred, batch)

    def _flush_deferred(self, batch: Batch) -> None:
        """Time is up for a batch. If it went with another commit, the next one has begun to wait.

        To cancel the timer with every commit would cost more than to let it ring.
        """
        self._deferred = None
        if self._gathering is batch:
            self._plan_flush()
        elif self._gathering.effects:
            self._plan_deferred()

    def _flush(self) -> None:
        self._flush_planned = False
        if self._is_best_done_here(self._gathering):
            self._commit_here()
        elif not self._commit_elsewhere():
            batch = self._take_batch()
            self.thread.put(lambda: self._commit_and_tell(batch))

    def _commit_here(self) -> None:
        batch = self._take_batch()
        self._finish(batch, *self._commit(batch))

    def _take_batch(self) -> Batch:
        self._committing, self._gathering = self._gathering, Batch()
        return self._committing

    def _is_best_done_here(self, batch: Batch) -> bool:
        return (
            self._pace.is_quick
            and len(batch.waiters) == 1
            and batch.size_bytes <= _HERE_BYTES_MAX
            and not self._linger_s
            and self.thread.is_idle
            and self.is_alone is not None
            and self.is_alone()
        )

    def _commit(self, batch: Batch) -> tuple[Exception | None, float]:
        """The error, if any, and how long the commit took."""
        error: Exception | None = None
        began = perf_counter()
        try:
            self._engine.commit([mutation for _, mutation in batch.effects])
        except Exception as failure:
            error = failure
        return error, perf_counter() - began

    def _commit_and_tell(self, batch: Batch) -> None:
        """Runs on the commit thread."""
        error, took_s = self._commit(batch)
        # Without a loop the process is shutting down, and nobody is left to notify.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, batch, error, took_s)

    def _commit_elsewhere(self) -> bool:
        """Let the committer have what was gathered, if it can take that."""
        batch = self._gathering
        if (
            self.process is None
            or not self.thread.is_idle
            or not self.process.commit(
                [mutation for _, mutation in batch.effects],
                batch.size_bytes,
                partial(self._committed_elsewhere, batch, perf_counter()),
            )
        ):
            return False
        self._take_batch()
        self.thread.hold()
        return True

    def _committed_elsewhere(self, batch: Batch, began: float, answer: Answer | None) -> None:
        self.thread.release()
        if answer is Answer.DONE:
            self._finish(batch, None, perf_counter() - began)
        elif answer is Answer.FAILED:
            # Nothing is stored. The engine finds out what is wrong.
            self.thread.put(lambda: self._commit_and_tell(batch))
        else:
            self.thread.put(lambda: self._give_up_and_tell(batch))

    def _give_up_and_tell(self, batch: Batch) -> None:
        """Runs on the commit thread, after the committer has ended."""
        assert self._engine.committer is not None
        self._engine.committer.ended([mutation for _, mutation in batch.effects])
        self._loop.call_soon_threadsafe(self._finish, batch, OutcomeUnknown(), 0.0)

    def _finish(self, batch: Batch, error: Exception | None, took_s: float) -> None:
        self._committing = None
        if error is None and self._gathering.is_awaited and not self._linger_s:
            # First, so that it goes on while this one is published and answered. Only elsewhere:
            # a thread and the loop would hold each other up.
            self._commit_elsewhere()
        self.queued_bytes -= batch.size_bytes
        if error is None:
            self._publish(batch)
        else:
            self._fail(batch, error)
        if self._gathering.is_awaited:
            self._plan_flush()
        elif self._gathering.effects:
            self._plan_deferred()
        elif self._committing is None:
            self._idle.set()
        self._pace.note(took_s, len(batch.waiters))
        if self.process is not None and len(batch.waiters) > 1:
            self.process.want()
        self._note(batch, took_s, failed=error is not None)

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
        # Only after all of that is dropped: a notified client may retry at once.
        refusal = StorageFull if full else StorageUnavailable
        for reply, _ in batch.waiters:
            reply.settle(OutcomeUnknown() if isinstance(error, OutcomeUnknown) else refusal())
        # These were never sent to the engine, so it is certain that none is stored.
        for reply, _ in gathered.waiters:
            reply.settle(refusal())
        # Last, because the log may be on the full disk.
        with suppress(OSError, ValueError):
            log.error(
                "commit_failed",
                error=str(error),
                requests=len(batch.waiters),
                acknowledged=batch.acknowledged + gathered.acknowledged,
            )

    # ── Other work of the commit thread, and shutdown ────────────────────────────────────────

    def use_process(self) -> CommitProcess | None:
        """Commit in another process, once that is started, if the engine can."""
        if self._engine.committer is not None:
            self.process = CommitProcess(self._engine.committer)
        return self.process

    async def run(self, work: Callable[[], R]) -> R:
        """Run something between two commits, on the thread that owns the write connection."""
        return await self.thread.run(work)

    async def drain(self) -> None:
        """Accept nothing more, and finish what was accepted."""
        self._closed = True
        await self._idle.wait()
        await self.thread.stop()
