"""Quotas in service: admit or refuse what is about to be queued, count what was committed.

The rules are in `headwater.core.quotas`. Existing streams are counted once, at the start, and only
if there are quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headwater.core.errors import StreamError
from headwater.core.quotas import Amount, Ledger, Quota
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    ProducerAdvanced,
    ProducersForgotten,
    Purged,
    SoftDeleted,
    StreamState,
    Trimmed,
    Undeleted,
)
from headwater.service.batches import Effect
from headwater.service.entries import Entry
from headwater.service.writer import Writer
from headwater.store.engine import Engine
from headwater.store.engine.streams import DeletedStream, LoadedStream, StreamSummary

_PAGE: Final = 1_000
PRODUCING: Final = (Appended, ProducerAdvanced, Closed)


class NewProducers(set[tuple[int, str]]):
    """Producers that are charged but not committed yet, with their streams."""

    def introduced(self, owner: object, mutation: object) -> tuple[int, str] | None:
        """The producer that a change adds to a stream, if any."""
        key = _producer(mutation)
        state = owner.state if isinstance(owner, Entry) else None
        if key is None or state is None or key[1] in state.producers or key in self:
            return None
        return key

    def settle(self, mutation: object) -> bool:
        """Whether the producer of a change was new; it no longer is."""
        key = _producer(mutation)
        was_new = key in self
        if key is not None:
            self.discard(key)
        return was_new


def _producer(mutation: object) -> tuple[int, str] | None:
    if isinstance(mutation, PRODUCING) and mutation.producer is not None:
        return mutation.stream_id, mutation.producer.id
    return None


class Quotas:
    def __init__(self, quotas: tuple[Quota, ...], engine: Engine) -> None:
        """Counts what the engine holds, so do not call this on the event loop."""
        self.ledger = Ledger(quotas)
        self._new_producers = NewProducers()
        self.kept = Ledger(quotas)
        """Deleted streams that can be undeleted."""
        _count(self.ledger, engine.streams.summaries, engine.streams.load)
        _count(self.kept, engine.streams.deleted, engine.streams.load_deleted)

    def may_keep(self, state: StreamState) -> bool:
        """Whether what a stream holds may be kept if it is deleted now."""
        self.kept.open(state.config.id, state.config.path)
        try:
            self.kept.admit(state.config.id, Amount(bytes=kept_bytes(state)))
        except StreamError:
            return False
        finally:
            self.kept.close(state.config.id)
        return True

    def watch(self, writer: Writer) -> None:
        writer.admit = self._admit
        writer.observers.append(self._committed)
        writer.failure_observers.append(self._failed)

    def _admit(self, effects: Sequence[Effect]) -> None:
        """All or nothing."""
        charged: list[tuple[int, Amount]] = []
        introduced: list[tuple[int, str]] = []
        try:
            for owner, mutation in effects:
                if isinstance(mutation, Created):
                    self.ledger.open(mutation.config.id, mutation.config.path)
                elif isinstance(mutation, Undeleted):
                    self.ledger.open(mutation.stream_id, mutation.state.config.path)
                new = self._new_producers.introduced(owner, mutation)
                cost = cost_of(mutation, new is not None)
                if cost is not None:
                    self.ledger.admit(*cost)
                    charged.append(cost)
                if new is not None:
                    self._new_producers.add(new)
                    introduced.append(new)
        except StreamError:
            for stream_id, amount in charged:
                self.ledger.charge(stream_id, amount, -1)
            self._new_producers.difference_update(introduced)
            self._forget_new(effects)
            raise

    def _committed(self, effects: Sequence[Effect]) -> None:
        for owner, mutation in effects:
            if isinstance(mutation, PRODUCING):
                self._new_producers.settle(mutation)
                continue
            match mutation:
                case ProducersForgotten(stream_id, ids):
                    self.ledger.forget_producers(stream_id, len(ids))
                case Deleted(stream_id, _, kept_until_ms):
                    held = self.ledger.held(stream_id)
                    self.ledger.close(stream_id)
                    if kept_until_ms is not None and isinstance(owner, Entry):
                        self.kept.open(stream_id, owner.path)
                        self.kept.charge(stream_id, Amount(bytes=held))
                case Undeleted(stream_id) | Purged(stream_id):
                    self.kept.close(stream_id)
                case SoftDeleted(stream_id):
                    self.ledger.hide(stream_id)
                case Trimmed(stream_id, _, config) if isinstance(owner, Entry) and owner.state:
                    # What is not committed yet is charged already.
                    if owner.state.config.id == stream_id:
                        self.ledger.keeps(stream_id, owner.state.tail - config.kept_from)

    def _failed(self, effects: Sequence[Effect]) -> None:
        """None of it happened."""
        for _, mutation in effects:
            if not isinstance(mutation, PRODUCING):
                continue
            size = len(mutation.body) if isinstance(mutation, Appended) else 0
            was_new = self._new_producers.settle(mutation)
            self.ledger.charge(mutation.stream_id, Amount(0, size, int(was_new)), -1)
        self._forget_new(effects)

    def _forget_new(self, effects: Sequence[Effect]) -> None:
        for _, mutation in effects:
            if isinstance(mutation, Created):
                self.ledger.close(mutation.config.id)
            elif isinstance(mutation, Undeleted):
                self.ledger.close(mutation.stream_id)


def _count(
    ledger: Ledger,
    pages: Callable[[str, str, int], Sequence[StreamSummary | DeletedStream]],
    load: Callable[[str], LoadedStream | None],
) -> None:
    after = ""
    while True:
        page = pages("", after, _PAGE)
        for one in page:
            loaded = load(one.path)
            if loaded is not None:
                ledger.open(loaded.state.config.id, one.path)
                ledger.charge(loaded.state.config.id, _amount(loaded.state))
        if len(page) < _PAGE:
            return
        after = page[-1].path


def _amount(state: StreamState) -> Amount:
    return Amount(1, kept_bytes(state), state.producer_count)


def kept_bytes(state: StreamState) -> int:
    return state.tail - max(state.config.kept_from, state.config.lineage.base)


def cost_of(mutation: object, new_producer: bool) -> tuple[int, Amount] | None:
    if isinstance(mutation, Created):
        return mutation.config.id, Amount(streams=1)
    if isinstance(mutation, Undeleted):
        return mutation.stream_id, _amount(mutation.state)
    if isinstance(mutation, PRODUCING):
        size = len(mutation.body) if isinstance(mutation, Appended) else 0
        return mutation.stream_id, Amount(bytes=size, producers=int(new_producer))
    return None
