"""Ids that were given out: never again, whatever becomes of what they were given to."""

from __future__ import annotations

from headwater.store.postgresql.values import Statement
from headwater.store.rows import Query


def next_id(query: Query, kind: str) -> int:
    return int(query("SELECT last + 1 FROM ids WHERE kind = %s", (kind,))[0][0])


def used_ids(kind: str, last: int) -> Statement:
    return "UPDATE ids SET last = greatest(last, %s) WHERE kind = %s", (last, kind)
