"""A frame as Arrow rows: every message with its offset, time and producer.

Both the server and clients that read history files directly use this, so a message becomes the same
row either way. The only work per message is finding where it ends, and not even that if each append
is one message.

- `offset`     of the message's append
- `index`      its place in that append
- `timestamp`  when it was stored
- `value`      JSON text, or bytes
- `producer_id`, `producer_epoch`, `producer_seq`  on request, null without a producer
- `message_id` from a header, on request, null if there was none
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core.errors import DataCorrupt
from headwater.core.frames import Frame, Stamps
from headwater.core.offsets import POSITION_MAX, WIDTH, Offset, format_offset

_TIME: Final = pa.timestamp("us", tz="UTC")
_PLAIN: Final = (
    pa.field("offset", pa.string()),
    pa.field("index", pa.int32()),
    pa.field("timestamp", _TIME),
)
_PRODUCER: Final = (
    pa.field("producer_id", pa.string()),
    pa.field("producer_epoch", pa.int64()),
    pa.field("producer_seq", pa.int64()),
)
_HEADERS: Final = (*_PRODUCER, pa.field("message_id", pa.string()))


def schema_of(*, json: bool, headers: bool) -> Any:
    value = pa.field("value", pa.string() if json else pa.binary())
    return pa.schema([*_PLAIN, value, *(_HEADERS if headers else ())])


def rows_of(frame: Frame, first: Offset, *, json: bool, headers: bool) -> Any:
    """A record batch of a frame's messages.

    `first` is the offset where the frame begins. At the point where a fork leaves its source, it
    names another run than the offsets after it.
    """
    of_appends = [_tokens(frame, first), _times(frame)]
    if headers:
        of_appends += [*_stamp_columns(frame), _ids(frame)]
    if json and not frame.has_single_messages:
        index, value, parents = _messages(frame)
        of_appends = [column.take(parents) for column in of_appends]
    else:
        index = pa.repeat(pa.scalar(0, pa.int32()), frame.appends)
        value = _cut(frame, _append_ends(frame)) if json else _slices(frame, _append_ends(frame))
    offset, timestamp, *details = of_appends
    columns = [offset, index, timestamp, value, *details]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(json=json, headers=headers))


def places_of(frame: Frame, first: Offset, *, headers: bool) -> Any:
    """The same without the values, which then need not be located; None for a cut append."""
    if frame.starts[-1] - frame.starts[0] != len(frame.data):
        return None
    index, parents = _spread(_begins(frame, frame.messages), frame.messages)
    of_appends = [_tokens(frame, first), _times(frame)]
    if headers:
        of_appends += [*_stamp_columns(frame), _ids(frame)]
    offset, timestamp, *details = [column.take(parents) for column in of_appends]
    fields = [*_PLAIN, *(_HEADERS if headers else ())]
    return pa.RecordBatch.from_arrays(
        [offset, index, timestamp, *details], schema=pa.schema(fields)
    )


def _messages(frame: Frame) -> tuple[Any, Any, Any]:
    """For each message: its place in its append, its text, and the number of its append."""
    sizes = _numbers(pa.int32(), frame.message_sizes())
    index, parents = _spread(_begins(frame, len(sizes)), len(sizes))
    ends = pc.cumulative_sum(pc.add(sizes, pa.scalar(1, pa.int32())))
    return index, _cut(frame, pa.concat_arrays([pa.array([0], pa.int32()), ends])), parents


def _spread(begins: Any, messages: int) -> tuple[Any, Any]:
    """For each message: its place in its append, and the number of that append."""
    numbers = pa.arange(0, messages)
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(begins, numbers))
    return pc.subtract(numbers, begins.take(parents)).cast(pa.int32()), parents


def _append_ends(frame: Frame) -> Any:
    """Where each append begins in the data, and where the last one ends."""
    starts = _numbers(pa.uint32(), frame.starts)
    ends = pc.subtract(starts, starts[0]).cast(pa.int32())
    return pc.min_element_wise(ends, pa.scalar(len(frame.data), pa.int32()))


def _numbers(kind: Any, values: array[int]) -> Any:
    """An Arrow array that shares the memory of another array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _begins(frame: Frame, messages: int) -> Any:
    """The index of the first message of each append, and the total count.

    The last append may have been cut, so it has whatever the others leave.
    """
    firsts = _numbers(pa.uint32(), frame.firsts)
    begins = pc.subtract(firsts, firsts[0]).cast(pa.int32())[:-1]
    if begins[-1].as_py() >= messages:
        raise DataCorrupt(f"stream {frame.run} at {frame.start} has fewer messages than it says")
    return pa.concat_arrays([begins, pa.array([messages], pa.int32())])


def _slices(frame: Frame, ends: Any) -> Any:
    """The data, cut without copying it."""
    buffers = [None, ends.buffers()[1], pa.py_buffer(frame.data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _cut(frame: Frame, ends: Any) -> Any:
    """JSON messages, without the commas after them."""
    return pc.binary_slice(_slices(frame, ends), 0, -1).view(pa.string())


def _tokens(frame: Frame, first: Offset) -> Any:
    positions = _numbers(pa.uint32(), frame.starts)[1:-1].cast(pa.int64())
    # A number with one digit more than a token holds keeps all its zeros, and the run replaces its
    # first digit.
    wide = pc.add(positions, POSITION_MAX + 1 + frame.origin).cast(pa.string())
    rest = pc.binary_replace_slice(wide, 0, 1, format_offset(frame.run, 0)[:-WIDTH])
    return pa.concat_arrays([pa.array([str(first)], pa.string()), rest])


def _times(frame: Frame) -> Any:
    return _numbers(pa.timestamp("ms", tz="UTC"), frame.times).cast(_TIME)


def _stamp_columns(frame: Frame) -> list[Any]:
    if frame.stamps is None:
        return [pa.nulls(frame.appends, field.type) for field in _PRODUCER]
    stamps: Stamps = frame.stamps
    who = _numbers(pa.uint32(), stamps.who)
    known = pc.greater(who, pa.scalar(0, pa.uint32()))
    ids = pa.array([None, *stamps.names], pa.string()).take(who)
    epochs, seqs = (_numbers(pa.int64(), column) for column in (stamps.epochs, stamps.seqs))
    nothing = pa.scalar(None, pa.int64())
    return [ids, pc.if_else(known, epochs, nothing), pc.if_else(known, seqs, nothing)]


def _ids(frame: Frame) -> Any:
    if frame.ids is None:
        return pa.nulls(frame.appends, pa.string())
    return pa.array(frame.ids, pa.string())
