"""Subscriptions in the SQLite database: a row per subscription, one per link with a place.

A link needs a row when it was named explicitly or when something of its stream is acknowledged.
Streams that a pattern takes in and that begin at their beginning need none.
"""

from __future__ import annotations

from typing import Final

import apsw
import msgspec

from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import (
    NO_WAKE,
    LinksMarked,
    LinksRemoved,
    Mark,
    Phase,
    SecretStored,
    StoredSubscription,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionMutation,
    SubscriptionRecord,
    Wake,
    WakeChanged,
)
from headwater.store.sqlite import rows
from headwater.store.sqlite.inserts import insert_rows
from headwater.store.sqlite.rows import Query, Row

SUBSCRIPTION_COLUMNS: Final = (
    "id, name, created_at, base_url, config, generation, phase, wake_id, until, attempts, holder"
)
LINK_COLUMNS: Final = "subscription_id, path, explicit, stream_id, acked"
_REPLACE_LINK: Final = (
    " ON CONFLICT DO UPDATE SET explicit = excluded.explicit, stream_id = excluded.stream_id,"
    " acked = excluded.acked"
)

_config = msgspec.json.Decoder(SubscriptionConfig)


def write_subscription(write: apsw.Connection, mutation: SubscriptionMutation) -> None:
    match mutation:
        case SubscriptionCreated(record, config, marks):
            row = (*record, msgspec.json.encode(config).decode(), *_wake_row(NO_WAKE))
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
                (*_wake_row(wake), subscription_id),
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
    found: list[Row] = [
        (subscription_id, mark.path, int(mark.explicit), mark.stream_id, mark.acked)
        for mark in marks
    ]
    insert_rows(write, "subscription_links", LINK_COLUMNS, found, _REPLACE_LINK)


def _wake_row(wake: Wake) -> Row:
    return (
        wake.generation,
        int(wake.phase),
        wake.wake_id,
        wake.until_ms,
        wake.attempts,
        wake.holder,
    )


def _read_subscription(query: Query, row: Row) -> StoredSubscription:
    generation, phase, *rest = row[5:]
    links = query(
        "SELECT path, explicit, stream_id, acked FROM subscription_links"
        " WHERE subscription_id = ? ORDER BY path",
        (row[0],),
    )
    return StoredSubscription(
        SubscriptionRecord(*row[:4]),
        _config.decode(row[4]),
        Wake(generation, Phase(phase), *rest),
        [Mark(path, bool(explicit), *place) for path, explicit, *place in links],
    )


class Subscriptions:
    def __init__(self, query: Query) -> None:
        self._query = query

    def next_id(self) -> int:
        return rows.next_id(self._query, "subscriptions")

    def load(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        found = self._query(
            f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions"
            " WHERE ?1 IS NULL OR id = ?1 ORDER BY name",
            (subscription_id,),
        )
        return [_read_subscription(self._query, row) for row in found]

    def secrets(self) -> list[SecretStored]:
        found = self._query("SELECT kind, value, created_at FROM secrets ORDER BY id", ())
        return [SecretStored(*row) for row in found]
