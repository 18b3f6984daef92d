"""Subscriptions in the memory engine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from threading import RLock

from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import (
    NO_WAKE,
    LinksMarked,
    LinksRemoved,
    Mark,
    SecretStored,
    StoredSubscription,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionMutation,
    SubscriptionRecord,
    Wake,
    WakeChanged,
)


@dataclass(slots=True)
class _Stored:
    record: SubscriptionRecord
    config: SubscriptionConfig
    wake: Wake = NO_WAKE
    marks: dict[str, Mark] = field(default_factory=dict)


class Subscriptions:
    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._subscriptions: dict[int, _Stored] = {}
        self._secrets: list[SecretStored] = []
        self._next_id = 1

    def apply(self, mutation: SubscriptionMutation) -> None:
        match mutation:
            case SubscriptionCreated(record, config, marks):
                stored = self._subscriptions[record.id] = _Stored(record, config)
                stored.marks.update({mark.path: mark for mark in marks})
                self._next_id = max(self._next_id, record.id + 1)
            case SecretStored():
                self._secrets.append(mutation)
            case SubscriptionDeleted(subscription_id):
                self._subscriptions.pop(subscription_id, None)
            case _:
                self._change(mutation)

    def _change(self, mutation: WakeChanged | LinksMarked | LinksRemoved) -> None:
        stored = self._subscriptions.get(mutation.subscription_id)
        if stored is None:
            # It was deleted in the same transaction.
            return
        match mutation:
            case WakeChanged(_, wake):
                stored.wake = wake
            case LinksMarked(_, marks, _):
                stored.marks.update({mark.path: mark for mark in marks})
            case LinksRemoved(_, paths):
                for path in paths:
                    stored.marks.pop(path, None)

    def next_id(self) -> int:
        return self._next_id

    def secrets(self) -> list[SecretStored]:
        with self._lock:
            return list(self._secrets)

    def count(self) -> int:
        return len(self._subscriptions)

    def load(
        self, subscription_id: int | None = None, shards: Collection[int] | None = None
    ) -> list[StoredSubscription]:
        with self._lock:
            found = [
                stored
                for stored in self._subscriptions.values()
                if subscription_id in (None, stored.record.id)
            ]
            return [
                StoredSubscription(
                    stored.record,
                    stored.config,
                    stored.wake,
                    [stored.marks[path] for path in sorted(stored.marks)],
                )
                for stored in sorted(found, key=lambda stored: stored.record.name)
            ]
