"""The stored side of a group: its state, and what of that is stored and counted.

First deliveries wait for 10 to 30 ms before they are stored; see `headwater.core.groups.unstored`.
The state has everything at once, so it moves here and not when the writer takes the mutations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from headwater.core.errors import StreamError
from headwater.core.groups.mutations import (
    GroupAdvanced,
    GroupMutation,
    MessagesLeased,
    MessagesMarked,
    evolve,
    is_stored,
)
from headwater.core.groups.state import GroupState, Outstanding
from headwater.core.groups.unstored import ToStore, Unstored
from headwater.core.limits import Limits
from headwater.service.batches import Effect, Owner
from headwater.service.entries import Entry, Event
from headwater.service.groups.figures import GroupFigures
from headwater.service.replies import Reply
from headwater.service.timers import Alarm, Timers
from headwater.service.writer import Writer

R = TypeVar("R")

# A delivery is handed to the writer after one or two of these.
_WAIT_MS: Final = 10


class StoredGroup(Owner):
    def __init__(
        self,
        state: GroupState,
        entry: Entry,
        writer: Writer,
        timers: Timers,
        clock: Callable[[], int],
        figures: GroupFigures,
    ) -> None:
        self.state = state
        self.entry = entry
        self.figures = figures
        self._clock = clock
        self._writer = writer
        self._end: StreamError | None = None
        self.returned: list[Outstanding] = []
        """Deliveries that reached nobody: unless that is stored, the next copy takes them back."""
        self._unstored = Unstored()
        self._due_number = 0
        """Deliveries before it are stored when the alarm next rings."""
        self._storing = Alarm(timers, self._store_due)
        figures.loaded += 1
        self._in_flight = self._outstanding = 0
        self._count()

    # ── For the writer ───────────────────────────────────────────────────────────────────────

    def apply(self, mutation: GroupMutation) -> None:
        if isinstance(mutation, GroupAdvanced) and mutation.reset:
            self._unstored.moved()

    def publish(self, mutation: GroupMutation, limits: Limits) -> Event | None:
        if isinstance(mutation, MessagesLeased):
            if mutation.cursor is not None:
                self._unstored.committed(mutation.cursor)
        elif isinstance(mutation, GroupAdvanced) and mutation.reset:
            self._unstored.move_committed()
        return None

    @property
    def gone(self) -> bool:
        """Whether this copy is void: nothing more may be decided on it or stored from it."""
        return self._end is not None

    def _void(self, error: StreamError) -> None:
        """From now on this copy is void."""
        if self._end is None:
            self._end = error
            self.figures.loaded -= 1
            self._count()

    # ── Storing ──────────────────────────────────────────────────────────────────────────────

    def store(self, mutations: Sequence[GroupMutation]) -> None:
        """Apply mutations now and store them later: nobody waits for this."""
        if self.gone:
            return
        if self.state.config.durable and not self._can_wait(mutations):
            self._defer(*self._with_changes([each for each in mutations if is_stored(each)]))
        self._evolve(mutations)

    def _can_wait(self, mutations: Sequence[GroupMutation]) -> bool:
        """Let deliveries wait, if they are first ones."""
        if len(mutations) != 1:
            return not mutations
        leased = mutations[0]
        if not isinstance(leased, MessagesLeased) or leased.cursor is None:
            return False
        self._unstored.wait(leased)
        if self._storing.due_ms is None:
            self._storing.set(self._clock() + _WAIT_MS)
        return True

    def take_over(self, before: StoredGroup) -> None:
        """Continue from where a copy was whose commit has failed."""
        leased = before._unstored.after(self.state)
        if leased is not None and leased.cursor is not None:
            # They are stored with what comes next. A commit by themselves would fail over and over.
            self._unstored.wait(leased)
            group_id = self.state.record.id
            marked = MessagesMarked(group_id, tuple(leased.messages))
            self._evolve((marked, GroupAdvanced(group_id, leased.cursor)))

    def _store_due(self) -> None:
        """Store deliveries that have waited since the alarm rang last."""
        if self.gone or not self._unstored:
            return
        self._storing.set(self._clock() + _WAIT_MS)
        due, self._due_number = self._due_number, self._unstored.end
        self._store_until(due)

    def store_deliveries(self) -> None:
        """Store all deliveries that still wait: somebody is told of them, or this copy ends."""
        if not self.gone:
            self._store_until(self._unstored.end)

    def _store_until(self, number: int) -> None:
        # The writer may refuse, and they are made again after a crash in any case.
        with suppress(StreamError):
            if not self._is_ending:
                self._defer(*self._unstored.until(self.state, number))

    def _with_changes(self, mutations: Sequence[GroupMutation]) -> ToStore:
        """What to store for these mutations, with the deliveries that cannot wait any longer."""
        to_store = self._unstored.with_changes(self.state, mutations)
        if self._is_ending:
            # If the deletion fails, so does this: what was delivered before does not lead past it.
            return ToStore(mutations, to_store.passed)
        return to_store

    @property
    def _is_ending(self) -> bool:
        """Whether the stream is being deleted: nothing would remove a delivery stored after it."""
        stream = self.entry.state
        return stream is not None and (
            stream.deleted or stream.config.id != self.state.record.stream_id
        )

    def _defer(self, mutations: Sequence[GroupMutation], passed: int) -> None:
        if mutations:
            self._writer.defer([(self, mutation) for mutation in mutations])
            self._unstored.store(passed)

    def submit(
        self,
        mutations: Sequence[GroupMutation],
        reply: R,
        others: Sequence[Effect] = (),
        size: int = 0,
        *,
        durable: bool | None = None,
    ) -> Reply[R]:
        """Commit mutations of this group, and what belongs to them.

        An ephemeral group is in memory only, so none of it is stored.
        """
        if self._end is not None:
            raise self._end
        effects, passed = [*others], 0
        if self.state.config.durable if durable is None else durable:
            stored, passed = self._with_changes(mutations)
            effects += [(self, mutation) for mutation in stored]
        if effects:
            future = self._writer.submit(effects, reply, size)
        else:
            future = self._writer.reply_after(self, reply)
        self._unstored.store(passed)
        self._evolve(mutations)
        return future

    def _evolve(self, mutations: Sequence[GroupMutation]) -> None:
        for mutation in mutations:
            evolve(self.state, mutation)
        self._count()

    # ── Figures ──────────────────────────────────────────────────────────────────────────────

    def _count(self) -> None:
        """Update the metrics with this group's share; a void copy has none."""
        state, figures = self.state, self.figures
        in_flight = 0 if self.gone else state.in_flight
        outstanding = 0 if self.gone else len(state.outstanding)
        figures.in_flight += in_flight - self._in_flight
        figures.outstanding += outstanding - self._outstanding
        self._in_flight, self._outstanding = in_flight, outstanding

    @property
    def lag(self) -> int:
        """Unsettled messages: not delivered yet, or delivered and not done."""
        view = self.entry.view
        undelivered = view.messages - self.state.cursor.number if view else 0
        return undelivered + len(self.state.outstanding)

    def oldest(self) -> Outstanding | None:
        outstanding = self.state.outstanding
        return outstanding[min(outstanding)] if outstanding else None
