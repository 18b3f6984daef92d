"""Subscriptions: a row for each, one for each link with a place, and the secrets they sign with.

A link needs a row if it was named explicitly or if something in its stream is acknowledged. Streams
that match a pattern and begin at their beginning need none.
"""

from __future__ import annotations

from collections.abc import Collection
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
from headwater.store.rows import LINK_COLUMNS, SUBSCRIPTION_COLUMNS, NextId, Query, Row
from headwater.store.sql.tables import Tables

_WAKE: Final = "generation, phase, wake_id, until, attempts, holder"
_SECRET: Final = "kind, value, created_at"


class SubscriptionChanges:
    """The changes to subscriptions within one transaction, merged."""

    def __init__(self) -> None:
        self._created: dict[int, Row] = {}
        self._deleted: set[int] = set()
        self._wakes: dict[int, Wake] = {}
        self._links: dict[tuple[int, str], Mark | None] = {}
        self._secrets: list[Row] = []

    def add(self, mutation: SubscriptionMutation) -> None:
        match mutation:
            case SubscriptionCreated(record, config, marks):
                self._created[record.id] = rows.subscription_row(record, config)
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

    def write(self, tables: Tables) -> None:
        deleted = [(subscription_id,) for subscription_id in self._deleted]
        tables.delete("subscription_links", "subscription_id", deleted)
        tables.delete("subscriptions", "id", deleted)
        if self._created:
            tables.use_ids("subscriptions", max(self._created))
        created = [row for i, row in self._created.items() if i not in self._deleted]
        tables.insert("subscriptions", SUBSCRIPTION_COLUMNS, created)
        wakes = [(i, *rows.wake_row(wake)) for i, wake in self._wakes.items()]
        tables.update("subscriptions", "id", _WAKE, wakes)
        removed = [key for key, mark in self._links.items() if mark is None]
        tables.delete("subscription_links", "subscription_id, path", removed)
        marked = [
            rows.link_row(subscription_id, mark)
            for (subscription_id, _), mark in self._links.items()
            if mark is not None and subscription_id not in self._deleted
        ]
        tables.upsert("subscription_links", "subscription_id, path", LINK_COLUMNS, marked)
        tables.insert("secrets", _SECRET, self._secrets)


class Subscriptions:
    def __init__(self, query: Query, next_id: NextId, own: str = "") -> None:
        self._query = query
        self._next_id = next_id
        self._own = own
        """An additional condition: that a subscription belongs to this node."""

    def next_id(self) -> int:
        return self._next_id(self._query, "subscriptions")

    def load(
        self, subscription_id: int | None = None, shards: Collection[int] | None = None
    ) -> list[StoredSubscription]:
        sql = f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions"
        if subscription_id is None:
            among = "" if shards is None else f" AND shard IN ({','.join(map(str, shards))})"
            found = self._query(f"{sql} WHERE true{self._own}{among} ORDER BY name", ())
        else:
            found = self._query(f"{sql} WHERE id = ?{self._own}", (subscription_id,))
        return [rows.read_subscription(row, self._links(row[0])) for row in found]

    def count(self) -> int:
        return int(self._query("SELECT count(*) FROM subscriptions", ())[0][0])

    def _links(self, subscription_id: int) -> list[Row]:
        return self._query(
            "SELECT path, explicit, stream_id, acked FROM subscription_links"
            " WHERE subscription_id = ? ORDER BY path",
            (subscription_id,),
        )

    def secrets(self) -> list[SecretStored]:
        found = self._query(f"SELECT {_SECRET} FROM secrets ORDER BY id", ())
        return [SecretStored(*row) for row in found]
