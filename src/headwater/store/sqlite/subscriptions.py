"""Subscriptions in the SQLite database: a row per subscription, one per link with a place.

A link needs a row when it was named explicitly or when something of its stream is acknowledged.
Streams that a pattern takes in and that begin at their beginning need none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import apsw
import msgspec

from headwater.core.lineage import Inherited, Lineage
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import (
    NO_WAKE,
    LinksMarked,
    LinksRemoved,
    Mark,
    Phase,
    SecretStored,
    StoredSubscription,
    StreamTail,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionMutation,
    SubscriptionRecord,
    Wake,
    WakeChanged,
)
from headwater.store.sqlite.inserts import insert_rows
from headwater.store.sqlite.rows import Row

SUBSCRIPTION_COLUMNS: Final = (
    "id, name, created_at, base_url, config, generation, phase, wake_id, until, attempts, holder"
)
LINK_COLUMNS: Final = "subscription_id, path, explicit, stream_id, acked"
_REPLACE_LINK: Final = (
    " ON CONFLICT DO UPDATE SET explicit = excluded.explicit, stream_id = excluded.stream_id,"
    " acked = excluded.acked"
)
# In the rows, or in history if there are none.
_LAST_BYTE: Final = (
    "coalesce((SELECT start + length(body) FROM ops WHERE stream_id = streams.id"
    " ORDER BY start DESC LIMIT 1),"
    " (SELECT until FROM extents WHERE run = streams.id ORDER BY start DESC LIMIT 1))"
)

_config = msgspec.json.Decoder(SubscriptionConfig)
_runs = msgspec.json.Decoder(list[tuple[int, int]])

Query = Callable[[str, tuple[object, ...]], list[Row]]


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


def load_subscriptions(query: Query, subscription_id: int | None) -> list[StoredSubscription]:
    """One subscription, or all of them by name."""
    found = query(
        f"SELECT {SUBSCRIPTION_COLUMNS} FROM subscriptions"
        " WHERE ?1 IS NULL OR id = ?1 ORDER BY name",
        (subscription_id,),
    )
    return [_read_subscription(query, row) for row in found]


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


def load_secrets(query: Query) -> list[SecretStored]:
    return [
        SecretStored(*row)
        for row in query("SELECT kind, value, created_at FROM secrets ORDER BY id", ())
    ]


def load_tails(query: Query, prefix: str, after: str, limit: int) -> list[StreamTail]:
    # The upper bound lets the index on the path stop where the prefix does.
    found = query(
        f"SELECT path, id, inherited, {_LAST_BYTE} FROM streams"
        " WHERE status < 2 AND path >= ?1 AND path > ?2 AND path < ?1 || char(1114111)"
        " AND status = 0 ORDER BY path LIMIT ?3",
        (prefix, after, limit),
    )
    tails: list[StreamTail] = []
    for path, stream_id, inherited, last_byte in found:
        runs = tuple(Inherited(*run) for run in _runs.decode(inherited)) if inherited else ()
        lineage = Lineage(stream_id, runs)
        tails.append(StreamTail(path, lineage, lineage.base if last_byte is None else last_byte))
    return tails
