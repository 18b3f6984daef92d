"""The stored side of a group: its state, and what of that is stored and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headwater.core.errors import StreamError
from headwater.core.groups.mutations import GroupMutation, evolve, is_stored
from headwater.core.groups.state import GroupState, Outstanding
from headwater.service.batches import Effect, Owner
from headwater.service.entries import Entry
from headwater.service.groups.figures import GroupFigures
from headwater.service.replies import Reply
from headwater.service.writer import Writer

R = TypeVar("R")


class StoredGroup(Owner):
    def __init__(
        self, state: GroupState, entry: Entry, writer: Writer, figures: GroupFigures
    ) -> None:
        self.state = state
        self.entry = entry
        self.figures = figures
        self._writer = writer
        self._end: StreamError | None = None
        figures.loaded += 1
        self._in_flight = self._outstanding = 0
        self._count()

    # ── For the writer ───────────────────────────────────────────────────────────────────────

    def apply(self, mutation: GroupMutation) -> None:
        evolve(self.state, mutation)
        self._count()

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
        durable = self.state.config.durable
        effects: list[Effect] = [(self, each) for each in mutations if durable and is_stored(each)]
        if effects:
            self._writer.defer(effects)
        if len(effects) < len(mutations):
            for mutation in mutations:
                if not durable or not is_stored(mutation):
                    self.apply(mutation)

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
        if self.state.config.durable if durable is None else durable:
            effects = [*others, *[(self, mutation) for mutation in mutations]]
            if effects:
                return self._writer.submit(effects, reply, size)
            return self._writer.reply_after(self, reply)
        if others:
            future = self._writer.submit(others, reply, size)
        else:
            future = self._writer.reply_after(self, reply)
        for mutation in mutations:
            self.apply(mutation)
        return future

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
