"""What streams remember of their producers, as rows.

The hour of a producer's last use is indexed, and changes so rarely that it has its own statement.
Which rows are current is remembered, so that most commits skip that statement.
"""

from __future__ import annotations

from typing import Final

import apsw

from headwater.store import rows
from headwater.store.sqlite.tables import insert_rows

_REMEMBERED_MAX: Final = 100_000
_UPSERT: Final = " ON CONFLICT DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq"
_USED: Final = (
    "UPDATE producers SET used_at = ?1 WHERE stream_id = ?2 AND producer_id = ?3 AND used_at <> ?1"
)


class ProducerRows:
    def __init__(self) -> None:
        self._used: dict[tuple[int, str], int] = {}

    def write(self, write: apsw.Connection, producers: rows.Producers) -> None:
        if not producers:
            return
        values = [(*key, *state) for key, state in producers.items()]
        insert_rows(write, "producers", rows.PRODUCER_COLUMNS, values, _UPSERT)
        used = [
            (state.used_at_ms, *key)
            for key, state in producers.items()
            if self._used.get(key) != state.used_at_ms
        ]
        if used:
            write.executemany(_USED, used)

    def committed(self, producers: rows.Producers) -> None:
        if len(self._used) + len(producers) > _REMEMBERED_MAX:
            self._used.clear()
        self._used.update((key, state.used_at_ms) for key, state in producers.items())
