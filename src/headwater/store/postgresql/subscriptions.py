"""Subscriptions in the PostgreSQL database: a row per subscription, one per link with a place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.subscriptions.state import (
    LinksMarked,
    LinksRemoved,
    Mark,
    SecretStored,
    StoredSubscription,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionMutation,
    Wake,
    WakeChanged,
)
from headwater.store import rows
from headwater.store.postgresql.ids import next_id, used_ids
from headwater.store.postgresql.ownership import SHARD
from headwater.store.postgresql.values import Statement, bigints, delete, insert, update, upsert
from headwater.store.rows import LINK_COLUMNS, SUBSCRIPTION_COLUMNS, Query, Row

_WAKE: Final = "generation, phase, wake_id, until, attempts, holder"


class SubscriptionChanges:
    """The changes to subscriptions within one transaction, brought together."""

    def __init__(self) -> None:
        self._created: dict[int, Row] = {}
        self._deleted: set[int] = set()
        self._wakes: dict[int, Wake] = {}
        self._links: dict[tuple[int, str], Mark | None] = {}
        self._secrets: list[Row] = []

    def add(self, mutation: SubscriptionMutation) -> None:
        match mutation:
            case SubscriptionCreated(record, config, marks):
                self._created[record.id] = (*rows.subscription_row(record, config), SHARD)
                self._mark(record.id, marks)
            case SubscriptionDeleted(subscription_id):
                self._deleted.add(subscription_id)
            case WakeChanged(subscription_id, wake):
                self._wakes[subscription_id] = wake
            case LinksMarked(subscription_id, marks, _):
                self._mark(subscription_id, marks)
            case LinksRemoved(subscription_id, paths):
                for path in paths:
                    self._links[subscription_id, path] = None
            case SecretStored(kind, value, at_ms):
                self._secrets.append((kind, value, at_ms))

    def _mark(self, subscription_id: int, marks: tuple[Mark, ...]) -> None:
        for mark in marks:
            self._links[subscription_id, mark.path] = mark

    def statements(self) -> Iterator[Statement]:
        if self._deleted:
            ids = bigints(list(self._deleted))
            yield "DELETE FROM subscription_links WHERE subscription_id = ANY(%s)", (ids,)
            yield "DELETE FROM subscriptions WHERE id = ANY(%s)", (ids,)
        if self._created:
            yield used_ids("subscriptions", max(self._created))
        created = [row for i, row in self._created.items() if i not in self._deleted]
        if created:
            yield insert("subscriptions", f"{SUBSCRIPTION_COLUMNS}, shard", created)
        if self._wakes:
            found = [(i, *rows.wake_row(wake)) for i, wake in self._wakes.items()]
            yield update("subscriptions", "id", _WAKE, found)
        removed = [key for key, mark in self._links.items() if mark is None]
        if removed:
            yield delete("subscription_links", "subscription_id, path", removed)
        marked = [
            rows.link_row(subscription_id, mark)
            for (subscription_id, _), mark in self._links.items()
            if mark is not None and subscription_id not in self._deleted
        ]
        if marked:
            yield upsert("subscription_links", "subscription_id, path", LINK_COLUMNS, marked)
        if self._secrets:
            yield insert("secrets", "kind, value, created_at", self._secrets)


class Subscriptions:
    def __init__(self, query: Query) -> None:
        self._query = query

    def next_id(self) -> int:
        return next_id(self._query, "subscriptions")

    def load(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        sql = f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions"
        if subscription_id is None:
            found = self._query(f"{sql} ORDER BY name", ())
        else:
            found = self._query(f"{sql} WHERE id = %s", (subscription_id,))
        return [rows.read_subscription(row, self._links(row[0])) for row in found]

    def _links(self, subscription_id: int) -> list[Row]:
        return self._query(
            "SELECT path, explicit, stream_id, acked FROM subscription_links"
            " WHERE subscription_id = %s ORDER BY path",
            (subscription_id,),
        )

    def secrets(self) -> list[SecretStored]:
        found = self._query("SELECT kind, value, created_at FROM secrets ORDER BY id", ())
        return [SecretStored(*row) for row in found]
