"""Reading less if a filter allows it: by stream, by time and by offset.

What a filter excludes is not read, as far as whole appends allow, and Spark still applies the
filter to the rest. So a filter that is not supported here only costs time.

Spark refuses a reader with `pushFilters` unless `spark.sql.python.filterPushdown.enabled` is on,
and does not tell a reader whether it is. But only then does it plan in a process of a separate
module, and that can be detected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headwater.client.errors import BadRequest
from pyspark_headwater.selection import Offsets
from pyspark_headwater.wire import Wire

_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_PLACES: Final = frozenset({"_stream", "_timestamp", "_offset"})


def is_switched_on() -> bool:
    """Whether Spark is planning a read with filters."""
    return _PLANNER in sys.modules


def narrowed(
    start: Offsets, end: Offsets, filters: Sequence[Filter], wire: Wire, *, own_schema: bool
) -> tuple[Offsets, Offsets]:
    """The places between which all rows that pass the filters lie.

    With a user's own schema, `timestamp` is a field of the message and `_timestamp` is not.
    """
    start, end = dict(start), dict(end)
    for one in filters:
        match _column(one, own_schema):
            case "stream":
                _by_stream(one, end)
            case "timestamp":
                _by_time(one, start, end, wire)
            case "offset":
                _by_offset(one, start, end, wire)
    return start, {name: max(offset, start.get(name, offset)) for name, offset in end.items()}


def _column(one: Filter, own_schema: bool) -> str | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return None
    if own_schema:
        return path[0][1:] if path[0] in _PLACES else None
    return path[0]


def _by_stream(one: Filter, end: Offsets) -> None:
    if not isinstance(one, EqualTo | In):
        return
    wanted: Iterable[Any] = one.value if isinstance(one, In) else (one.value,)
    for name in end.keys() - set(wanted):
        del end[name]


def _by_time(one: Filter, start: Offsets, end: Offsets, wire: Wire) -> None:
    at = getattr(one, "value", None)
    if not isinstance(at, datetime) or at.tzinfo is None:
        return
    at_ms = max(0, int(at.timestamp() * 1000))
    for name in end:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            start[name] = max(start[name], wire.offset_at(name, at_ms))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            end[name] = min(end[name], wire.offset_at(name, at_ms + 1))


def _by_offset(one: Filter, start: Offsets, end: Offsets, wire: Wire) -> None:
    offset = getattr(one, "value", None)
    if not isinstance(offset, str):
        return
    for name in end:
        try:
            after = wire.reach(name, offset, messages=0).offset
        except BadRequest:
            # Not an offset of this stream: Spark decides whether anything passes.
            continue
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            start[name] = max(start[name], offset)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            end[name] = min(end[name], after)
