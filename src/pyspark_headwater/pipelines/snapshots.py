"""The pipeline `snapshot`: the state of a stream, written back to the server for new readers.

A snapshot is a JSON array of State Protocol messages, one `insert` for each entity, sorted by type
and key. A reader applies them and reads on from the snapshot's offset. The next snapshot is made
from the last one and what came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater.client.errors import StreamNotFound
from headwater.core.content_types import JSON
from pyspark_headwater.errors import HeadwaterSparkError
from pyspark_headwater.options import read_options
from pyspark_headwater.pipelines import transforms
from pyspark_headwater.pipelines.folding import Control, Fold, Place, fold_controls
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import BEGINNING, Wire, wire_to

SNAPSHOT_BYTES_MAX: Final = 64 * 2**20


class _Entity(msgspec.Struct):
    type: str
    key: str
    value: msgspec.Raw
    headers: dict[str, Any]


def take_snapshot(spark: SparkSession, options: dict[str, str]) -> str | None:
    """Write the state of a stream to the server; returns its offset, None if it is not new.

    `options` are those of the format: `endpoint`, `stream` and the like.
    """
    chosen = read_options(options, "batch read")
    (stream,) = chosen.streams
    wire = wire_to(chosen.server)
    start, known = _latest(wire, stream)
    tail = Selection(chosen, wire).ending()[stream]
    if tail == start:
        return None
    places = {
        "startingOffsets": msgspec.json.encode({stream: start}).decode(),
        "endingOffsets": msgspec.json.encode({stream: tail}).decode(),
    }
    messages = spark.read.format("headwater").options(**options, **places).load()
    found = transforms.only_changes(messages).cache()
    try:
        state, fold, _ = folded(found, state_rows(spark, known))
        # What is undecided is left to those who read on.
        offset = tail if fold.aside is None else fold.aside.offset
        if offset <= start:
            return None
        if fold.aside is not None:
            state, _, _ = folded(
                found.where(~transforms.from_place(fold.aside)), state_rows(spark, known)
            )
        body = _encode((row.type, row.key, row.value) for row in state.toLocalIterator())
    finally:
        found.unpersist()
    wire.stream(stream).snapshots.put(offset, body, content_type=JSON)
    return offset


def folded(changes: DataFrame, state: DataFrame) -> tuple[DataFrame, Fold, Place | None]:
    """The state after some changes, with how they were folded and where they end."""
    end: Row = changes.agg(F.max(transforms.place()).alias("last")).collect()[0]
    if end.last is None:
        return state, fold_controls([], Place("", -1)), None
    last = Place(end.last.offset, end.last["index"])
    fold = fold_controls(_controls_of(changes), last)
    counting = transforms.latest(changes.where(transforms.within(fold.intervals)))
    before = state.where(F.lit(False)) if fold.replaces else state
    return transforms.merged(before, counting), fold, last


def _controls_of(changes: DataFrame) -> list[Control]:
    """The control messages, of which there are few."""
    found = changes.where("control IS NOT NULL").select(
        "offset", "index", "control", "named_offset"
    )
    return [
        Control(Place(row.offset, row["index"]), row.control, row.named_offset)
        for row in found.collect()
    ]


def state_rows(spark: SparkSession, rows: Sequence[tuple[str, str, str]]) -> DataFrame:
    """A state from types, keys and values, older than every message."""
    known = [(type_, key, value, "", -1, None) for type_, key, value in rows]
    return spark.createDataFrame(known, transforms.STATE)


def _latest(wire: Wire, stream: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Where the last snapshot was taken, and its content."""
    try:
        snapshot = wire.stream(stream).snapshots.get()
    except StreamNotFound as error:
        if error.code != "snapshot_not_found":
            raise
        return BEGINNING, []
    entities = msgspec.json.decode(snapshot.data, type=list[_Entity])
    return snapshot.offset, [(one.type, one.key, bytes(one.value).decode()) for one in entities]


def _encode(rows: Any) -> bytes:
    entities: list[tuple[str, str, bytes]] = []
    size = 0
    for type_, key, value in rows:
        entity = _Entity(type_, key, msgspec.Raw(value.encode()), {"operation": "insert"})
        encoded = msgspec.json.encode(entity)
        size += len(encoded) + 1
        if size > SNAPSHOT_BYTES_MAX:
            raise HeadwaterSparkError(
                f"the state is larger than {SNAPSHOT_BYTES_MAX} bytes, which is what a snapshot "
                "can hold; read the table of the pipeline materialize instead"
            )
        entities.append((type_, key, encoded))
    return b"[" + b",".join(encoded for _, _, encoded in sorted(entities)) + b"]"
