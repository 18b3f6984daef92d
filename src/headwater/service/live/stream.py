"""One live stream: follows the log, closes buckets, wakes waiting clients.

It listens to the commits of its stream and reads what is new from the hot tail. Changes are derived
in small slices, so that a large append does not block the loop; what is not derived yet is the lag.
The open bucket is closed soon after its first touch. The delay adapts: if closing one takes long,
because many clients are woken, the next one collects for longer, up to the bucket time of the
profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headwater.core.errors import LiveNotEnabled, OwnedElsewhere, StreamError, TooBusy
from headwater.core.live.interest import Interest
from headwater.core.live.journal import Waiter
from headwater.core.live.profile import TouchSettings
from headwater.core.live.state import LiveState
from headwater.core.live.templates import (
    Activation,
    LiveMutation,
    Template,
    TemplateRecord,
    TemplateSpec,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.core.state_protocol import RawRecord
from headwater.service.batches import Owner
from headwater.service.entries import Entry, Event, View
from headwater.service.following import FollowedStream
from headwater.service.live.changes import Changes
from headwater.service.live.waits import Outcome, Wait, WaitResult

if TYPE_CHECKING:
    from headwater.service.live.registry import Live

# Appenders get less of the loop the more is left to derive. Otherwise they would outrun the
# derivation, and everyone would be woken coarsely, which takes even longer.
_LAG_PER_SLICE: Final = 128
_SLICES_MAX: Final = 6
_COALESCE_MS_MIN: Final = 1.0
# Closing buckets may take about a fifth of the time.
_COALESCE_PER_FLUSH: Final = 4


class LiveStream(Owner):
    def __init__(self, live: Live, entry: Entry, view: View, settings: TouchSettings) -> None:
        self._live = live
        self.stream = FollowedStream(live.log, entry, view)
        self.settings = settings
        self.state = LiveState(live.new_epoch(), settings, source_seq=view.messages)
        self.coalesce_ms = _COALESCE_MS_MIN
        self.used_at_ms = live.monotonic_ms()
        self._changes = Changes(self.stream, view.tail, self._plan_pump, self._cannot_read)
        self._pump_planned = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush_due_ms = 0.0
        self._waits: dict[Waiter, Wait] = {}
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        self._last = self._result("timeout")
        self.collected_at_ms = self.used_at_ms
        self.closed = False
        self.stream.listen(self._on_event)

    def install(self, templates: Iterable[TemplateRecord]) -> None:
        """Load the stored templates, before anything is derived with them."""
        for record in templates:
            self.state.book.add(Template(record, active_from=self.state.journal.generation))

    # ── Following the log ────────────────────────────────────────────────────────────────────

    @property
    def is_current(self) -> bool:
        """Whether this is still the stream at its path."""
        return not self.closed and self.stream.view is not None

    @property
    def lag(self) -> int:
        view = self.stream.view
        return max(0, view.messages - self.state.journal.source_seq) if view else 0

    def _on_event(self, event: Event) -> None:
        self._live.figures.note(self)
        if event is Event.RELEASED:
            # Waiting clients are told to ask again, and then reach the node that has the stream.
            self.release()
            self.close(OwnedElsewhere(self.stream.entry.shard))
        elif event is Event.DELETED or not self.is_current:
            self.close(self.stream.missing())
        elif self.lag:
            self._plan_pump()

    def _plan_pump(self) -> None:
        if not self._pump_planned and not self.closed and not self._changes.is_fetching:
            self._pump_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Derive a slice of changes, or several if more have accumulated."""
        self._pump_planned = False
        try:
            self._derive_some()
        except Exception as error:
            self._live.watch.failed(error)
            self._skip_unreadable()

    def _derive_some(self) -> None:
        if not self.is_current or not self._changes.are_at_hand():
            return
        for _ in range(min(_SLICES_MAX, 1 + self.lag // _LAG_PER_SLICE)):
            self._derive(self._changes.take())
            if not self._changes.are_at_hand():
                break
        if self.lag:
            self._plan_pump()
        self._settle()
        self._plan_flush()

    def _derive(self, records: Sequence[RawRecord | None]) -> None:
        live = self._live
        lag = self.lag - len(records)
        live.figures.note(self)
        if self.state.derive(records, lag, live.monotonic_ms(), live.clock()):
            self._restart()

    def _cannot_read(self, error: Exception) -> None:
        if isinstance(error, StreamError):
            self._live.note_trouble(self.stream.path, error)
        else:
            self._live.watch.failed(error)
        self._skip_unreadable()

    def _skip_unreadable(self) -> None:
        """Unreadable changes could be anything: wake everyone."""
        view = self.stream.view
        if view is not None:
            self._changes.skip(view.tail)
            self.state.journal.source_seq = view.messages
        self._restart()

    def _restart(self) -> None:
        """Invalidate every cursor so far."""
        waiters = self.state.restart(self._live.new_epoch())
        self._last = self._result("timeout")
        self._answer(waiters, "stale")

    # ── Closing buckets ──────────────────────────────────────────────────────────────────────

    def _plan_flush(self) -> None:
        journal = self.state.journal
        if journal.settled:
            return
        now_ms = self._live.monotonic_ms()
        if journal.pending or journal.overflowing:
            due_ms = now_ms + self.coalesce_ms
        else:
            due_ms = max(float(journal.due_ms or 0), now_ms)
        if self._flush_timer is not None:
            if self._flush_due_ms <= due_ms:
                return
            self._flush_timer.cancel()
        self._flush_due_ms = due_ms
        loop = asyncio.get_running_loop()
        self._flush_timer = loop.call_later((due_ms - now_ms) / 1000, self._on_flush_due)

    def _on_flush_due(self) -> None:
        self._flush_timer = None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            self.flush()
        except Exception as error:
            self._live.watch.failed(error)
            self._restart()
        took_ms = (loop.time() - began_s) * 1000
        longest_ms = float(self.settings.flush_within_ms)
        self.coalesce_ms = min(longest_ms, max(_COALESCE_MS_MIN, took_ms * _COALESCE_PER_FLUSH))
        self._plan_flush()

    def flush(self, *, everything: bool = False) -> None:
        """Close the bucket now."""
        self._live.figures.note(self)
        woken = self.state.flush(self._live.monotonic_ms(), everything=everything)
        self._last = self._result("timeout")
        self._answer(woken, "touched")

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    def _result(self, outcome: Outcome) -> WaitResult:
        journal, wall_ms = self.state.journal, self._live.clock()
        since_ms = wall_ms - round(self.coalesce_ms)
        return WaitResult(outcome, journal.cursor, journal.flushed_seq, wall_ms, since_ms, {})

    def _answer(self, waiters: Sequence[Waiter], outcome: Outcome) -> None:
        if not waiters:
            return
        totals = self.state.totals
        if outcome == "touched":
            totals.touched += len(waiters)
        else:
            totals.stale += len(waiters)
        result = self._result(outcome)
        for waiter in waiters:
            wait = self._waits.get(waiter)
            if wait is not None:
                self._end(wait)
                wait.answer(result)

    def _end(self, wait: Wait) -> None:
        self._live.figures.note(self)
        del self._waits[wait.waiter]
        self.state.journal.remove(wait.waiter)
        self._live.deadlines.drop(wait)
        self._live.waiters -= 1
        self.used_at_ms = self._live.monotonic_ms()

    def wait(self, interest: Interest, cursor: str, timeout_ms: int) -> WaitResult | Wait:
        """Answer at once if something happened since the cursor, or wait for it."""
        live, state = self._live, self.state
        live.figures.note(self)
        self.used_at_ms = live.monotonic_ms()
        live.log.touch(self.stream.entry, live.clock())
        since = state.since(cursor)
        if since is None:
            state.totals.stale += 1
            return self._result("stale")
        waiter = state.wait(interest, since, live.clock())
        if waiter is None:
            state.totals.touched += 1
            return self._result("touched")
        if timeout_ms == 0:
            state.totals.timeouts += 1
            return self._last
        if live.waiters >= live.waiters_max:
            raise TooBusy("the server has as many waiting queries as it may; try again shortly")
        until_ms, fine = self.used_at_ms + timeout_ms, interest.mode == "fine"
        wait = Wait(waiter, until_ms, self._time_out, fine=fine)
        self._waits[waiter] = wait
        live.waiters += 1
        state.journal.add(waiter)
        live.deadlines.add(wait)
        return wait

    def _time_out(self, wait: Wait) -> None:
        self.state.totals.timeouts += 1
        self._end(wait)
        wait.answer(self._last)

    def leave(self, wait: Wait) -> None:
        """The client is gone; drop its wait."""
        if wait.waiter in self._waits:
            self._end(wait)
            wait.answer(self._last)

    # ── Settling ─────────────────────────────────────────────────────────────────────────────

    async def settle(self, timeout_ms: int) -> bool:
        """Wait until the cursor has passed everything committed so far."""
        view = self.stream.view
        if view is None:
            return False
        if self.lag:
            self._plan_pump()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append((view.messages, future))
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await future
            except TimeoutError:
                return False
        self.flush(everything=True)
        return True

    def _settle(self) -> None:
        reached = self.state.journal.source_seq
        for entry in [entry for entry in self._settling if entry[0] <= reached]:
            self._settling.remove(entry)
            if not entry[1].done():
                entry[1].set_result(None)

    # ── Templates ────────────────────────────────────────────────────────────────────────────

    async def activate(
        self, specs: Sequence[TemplateSpec | None], ttl_ms: int | None
    ) -> Activation:
        """Activate templates; they are stored when this returns."""
        self.used_at_ms = self._live.monotonic_ms()
        if self.state.book.not_followed(specs):
            self.flush(everything=True)
        outcome = self.state.activate(specs, ttl_ms, self._live.clock())
        self._plan_flush()
        try:
            await self._store(outcome.created, outcome.evicted)
        except StreamError:
            created = [t for t in outcome.created if self.state.book.active.get(t.id) is t]
            self.state.retire(created)
            self._plan_flush()
            raise
        self._live.metrics.note_templates(self, outcome.created, outcome.evicted)
        self._live.plan(self)
        return outcome

    async def collect(self) -> None:
        """Retire templates unused for long, and record when the others were used."""
        wall_ms = self._live.clock()
        self._live.figures.note(self)
        retired = self.state.retire_inactive(wall_ms)
        self._plan_flush()
        await self._store(self.state.book.unsaved_sightings(wall_ms), retired)
        self._live.metrics.note_templates(self, [], retired)

    async def _store(self, saved: Sequence[Template], retired: Sequence[Template]) -> None:
        # Templates are followed as soon as they are requested, so no state runs ahead here:
        # following too many does no harm, and those whose commit fails are retired again.
        effects: list[tuple[LiveStream, LiveMutation]] = []
        if saved:
            records = tuple(template.record() for template in saved)
            effects.append((self, TemplatesSaved(self.stream.id, records)))
        if retired:
            specs = tuple(template.spec for template in retired)
            effects.append((self, TemplatesRetired(self.stream.id, specs)))
        if effects:
            await self._live.log.writer.submit(effects, None)
            for template in saved:
                template.stored_seen_ms = template.last_seen_ms

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    @property
    def waits(self) -> int:
        return len(self._waits)

    @property
    def fine_waiters(self) -> int:
        return sum(wait.fine for wait in self._waits.values())

    def release(self) -> None:
        """End all waits."""
        for wait in [*self._waits.values()]:
            self._time_out(wait)

    def close(self, error: StreamError | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self.stream.stop_listening(self._on_event)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        error = error or LiveNotEnabled(self.stream.path)
        for wait in [*self._waits.values()]:
            self._end(wait)
            if not wait.future.done():
                wait.future.set_exception(error)
        for _, future in self._settling:
            if not future.done():
                future.set_exception(error)
