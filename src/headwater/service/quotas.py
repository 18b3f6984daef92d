"""Quotas at work: what is about to be queued is admitted or refused, what was committed is counted.

The rules are in `headwater.core.quotas`. What there is already is counted once, at the start, and
only where there are quotas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.errors import StreamError
from headwater.core.quotas import Amount, Ledger, Quota
from headwater.core.stream import Appended, Created, Deleted, SoftDeleted, Trimmed
from headwater.service.entries import Entry
from headwater.service.writer import Effect, Writer
from headwater.store.engine import Engine

_PAGE: Final = 1_000


class Quotas:
    def __init__(self, quotas: tuple[Quota, ...], engine: Engine) -> None:
        """Counts what the engine holds: not on the event loop."""
        self.ledger = Ledger(quotas)
        after = ""
        while True:
            page = engine.streams.summaries("", after, _PAGE)
            for summary in page:
                loaded = engine.streams.load(summary.path)
                if loaded is not None:
                    state = loaded.state
                    kept = state.tail - max(state.config.kept_from, state.config.lineage.base)
                    self.ledger.open(state.config.id, summary.path)
                    self.ledger.charge(state.config.id, Amount(1, kept, len(state.producers)))
            if len(page) < _PAGE:
                return
            after = page[-1].path

    def watch(self, writer: Writer) -> None:
        writer.admit = self._admit
        writer.observers.append(self._committed)
        writer.failure_observers.append(self._failed)

    def _admit(self, effects: Sequence[Effect]) -> None:
        """All of it, or nothing."""
        charged: list[tuple[int, Amount]] = []
        try:
            for owner, mutation in effects:
                if isinstance(mutation, Created):
                    self.ledger.open(mutation.config.id, mutation.config.path)
                cost = _cost(owner, mutation)
                if cost is not None:
                    self.ledger.admit(*cost)
                    charged.append(cost)
        except StreamError:
            for stream_id, amount in charged:
                self.ledger.charge(stream_id, amount, -1)
            self._forget_new(effects)
            raise

    def _committed(self, effects: Sequence[Effect]) -> None:
        for owner, mutation in effects:
            match mutation:
                case Deleted(stream_id):
                    self.ledger.close(stream_id)
                case SoftDeleted(stream_id):
                    self.ledger.hide(stream_id)
                case Trimmed(stream_id, _, config) if isinstance(owner, Entry) and owner.view:
                    self.ledger.keeps(stream_id, owner.view.tail - config.kept_from)

    def _failed(self, effects: Sequence[Effect]) -> None:
        """None of it happened. Whether a producer was new is not known any more: it stays counted
        until the next start, which is the side to err on."""
        for _, mutation in effects:
            if isinstance(mutation, Appended):
                self.ledger.charge(mutation.stream_id, Amount(bytes=len(mutation.body)), -1)
        self._forget_new(effects)

    def _forget_new(self, effects: Sequence[Effect]) -> None:
        for _, mutation in effects:
            if isinstance(mutation, Created):
                self.ledger.close(mutation.config.id)


def _cost(owner: object, mutation: object) -> tuple[int, Amount] | None:
    if isinstance(mutation, Created):
        return mutation.config.id, Amount(streams=1)
    if isinstance(mutation, Appended):
        producers = 0
        if mutation.producer is not None and isinstance(owner, Entry) and owner.state is not None:
            producers = int(mutation.producer.id not in owner.state.producers)
        return mutation.stream_id, Amount(bytes=len(mutation.body), producers=producers)
    return None
