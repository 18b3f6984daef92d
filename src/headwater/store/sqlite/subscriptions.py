"""Subscriptions in the SQLite database: a row per subscription, one per link with a place.

A link needs a row when it was named explicitly or when something of its stream is acknowledged.
Streams that a pattern takes in and that begin at their beginning need none.
"""

from __future__ import annotations

from typing import Final

import apsw

from headwater.core.subscriptions.state import (
    LinksMarked,
    LinksRemoved,
    Mark,
    SecretStored,
    StoredSubscription,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionMutation,
    WakeChanged,
)
from headwater.store import rows
from headwater.store.rows import LINK_COLUMNS, SUBSCRIPTION_COLUMNS, Query, Row
from headwater.store.sqlite.ids import next_id
from headwater.store.sqlite.inserts import insert_rows

_REPLACE_LINK: Final = (
    " ON CONFLICT DO UPDATE SET explicit = excluded.explicit, stream_id = excluded.stream_id,"
    " acked = excluded.acked"
)


def write_subscription(write: apsw.Connection, mutation: SubscriptionMutation) -> None:
    match mutation:
        case SubscriptionCreated(record, config, marks):
            row = rows.subscription_row(record, config)
            insert_rows(write, "subscriptions", SUBSCRIPTION_COLUMNS, [row])
            _write_links(write, record.id, marks)
        case SubscriptionDeleted(subscription_id):
            write.execute(
                "DELETE FROM subscription_links WHERE subscription_id = ?", (subscription_id,)
            )
            write.execute("DELETE FROM subscriptions WHERE id = ?", (subscription_id,))
        case WakeChanged(subscription_id, wake):
            write.execute(
                "UPDATE subscriptions SET generation = ?, phase = ?, wake_id = ?, until = ?,"
                " attempts = ?, holder = ? WHERE id = ?",
                (*rows.wake_row(wake), subscription_id),
            )
        case LinksMarked(subscription_id, marks, _):
            _write_links(write, subscription_id, marks)
        case LinksRemoved(subscription_id, paths):
            for path in paths:
                write.execute(
                    "DELETE FROM subscription_links WHERE subscription_id = ? AND path = ?",
                    (subscription_id, path),
                )
        case SecretStored(kind, value, at_ms):
            insert_rows(write, "secrets", "kind, value, created_at", [(kind, value, at_ms)])


def _write_links(write: apsw.Connection, subscription_id: int, marks: tuple[Mark, ...]) -> None:
    found = [rows.link_row(subscription_id, mark) for mark in marks]
    insert_rows(write, "subscription_links", LINK_COLUMNS, found, _REPLACE_LINK)


def _read(query: Query, row: Row) -> StoredSubscription:
    links = query(
        "SELECT path, explicit, stream_id, acked FROM subscription_links"
        " WHERE subscription_id = ? ORDER BY path",
        (row[0],),
    )
    return rows.read_subscription(row, links)


class Subscriptions:
    def __init__(self, query: Query) -> None:
        self._query = query

    def next_id(self) -> int:
        return next_id(self._query, "subscriptions")

    def load(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        found = self._query(
            f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions"
            " WHERE ?1 IS NULL OR id = ?1 ORDER BY name",
            (subscription_id,),
        )
        return [_read(self._query, row) for row in found]

    def secrets(self) -> list[SecretStored]:
        found = self._query("SELECT kind, value, created_at FROM secrets ORDER BY id", ())
        return [SecretStored(*row) for row in found]
