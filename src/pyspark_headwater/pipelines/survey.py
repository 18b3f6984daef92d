"""The content of a batch of changes, stream by stream: enough to plan the writing. No Spark.

Each task surveys its rows and reports a few bytes for each stream; the driver joins the reports. So
the number of streams in a batch does not matter, and no changes pass through the driver except
control messages, of which there are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.core.state_protocol import DELETE
from pyspark_headwater.pipelines.buckets import slot_of
from pyspark_headwater.pipelines.columns import News, join_news, news_in
from pyspark_headwater.pipelines.folding import Control, Place
from pyspark_headwater.wire import BEGINNING

REPORT: Final = "stream string, found binary"


class Point(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A message: its place, and when it was stored."""

    offset: str
    number: int
    at_us: int

    @property
    def place(self) -> Place:
        return Place(self.offset, self.number)


class Misfit(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A message that is not of the State Protocol."""

    point: Point
    why: str


class OfType(msgspec.Struct):
    """Changes of one entity type: how many, the slots of their keys, the fields of values."""

    changes: int = 0
    slots: set[int] = msgspec.field(default_factory=set)
    fields: News = msgspec.field(default_factory=dict)

    def add(self, key: str) -> None:
        self.changes += 1
        self.slots.add(slot_of(key))

    def join(self, other: OfType) -> None:
        self.changes += other.changes
        self.slots |= other.slots
        join_news(self.fields, other.fields)


class Survey(msgspec.Struct):
    """The content of a batch for one stream.

    Attributes:
        first: its first message.
        last: its last message.
        begins_us: when the stream's very first message was stored, if that is among them.
        misfit: the first message that is neither a change nor a control.
        controls: the control messages.
        types: the changes, by type of entity.
    """

    first: Point
    last: Point
    begins_us: int | None = None
    misfit: Misfit | None = None
    controls: list[tuple[str, int, str, str | None]] = []
    types: dict[str, OfType] = {}

    def control_messages(self) -> list[Control]:
        return [Control(Place(offset, n), kind, named) for offset, n, kind, named in self.controls]

    def join(self, other: Survey) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.begins_us = max((self.begins_us, other.begins_us), key=lambda one: one or -1)
        self.misfit = min((one for one in (self.misfit, other.misfit) if one), default=None)
        self.controls += other.controls
        for name, found in other.types.items():
            self.types.setdefault(name, OfType()).join(found)


# --- In a task -----------------------------------------------------------------------------------


def look(batches: Iterator[Any]) -> Iterator[Any]:
    """Survey the changes of a task."""
    found: dict[str, Survey] = {}
    for batch in batches:
        _add(found, batch)
    reports = [msgspec.msgpack.encode(one) for one in found.values()]
    yield pa.RecordBatch.from_arrays(
        [pa.array([*found], pa.string()), pa.array(reports, pa.binary())], names=["stream", "found"]
    )


_COLUMNS: Final = ("stream", "offset", "index", "at_us", "why", "control", "named_offset")


def _add(found: dict[str, Survey], batch: Any) -> None:
    values: dict[tuple[str, str], list[str]] = {}
    rows = zip(*(batch[name].to_pylist() for name in _COLUMNS), strict=True)
    changes = zip(
        *(batch[name].to_pylist() for name in ("type", "key", "operation", "value")), strict=True
    )
    for (stream, offset, number, at_us, why, control, named), change in zip(
        rows, changes, strict=True
    ):
        point = Point(offset, number, at_us)
        mine = found.get(stream)
        if mine is None:
            mine = found[stream] = Survey(point, point)
        elif point > mine.last:
            mine.last = point
        elif point < mine.first:
            mine.first = point
        if offset == BEGINNING:
            mine.begins_us = max(at_us, mine.begins_us or 0)
        if why is not None:
            misfit = Misfit(point, why)
            mine.misfit = misfit if mine.misfit is None else min(misfit, mine.misfit)
        elif control is not None:
            mine.controls.append((offset, number, control, named))
        else:
            type_, key, operation, value = change
            of_type = mine.types.get(type_)
            if of_type is None:
                of_type = mine.types[type_] = OfType()
            of_type.add(key)
            if operation != DELETE and value is not None:
                values.setdefault((stream, type_), []).append(value)
    for (stream, type_), texts in values.items():
        found[stream].types[type_].join(OfType(fields=news_in(texts)))


# --- On the driver -------------------------------------------------------------------------------


def joined(reports: Iterable[tuple[str, bytes]]) -> dict[str, Survey]:
    """The reports of all tasks as one survey for each stream."""
    found: dict[str, Survey] = {}
    for stream, report in reports:
        survey = msgspec.msgpack.decode(report, type=Survey)
        if stream in found:
            found[stream].join(survey)
        else:
            found[stream] = survey
    return found
