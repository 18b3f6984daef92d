"""From batches to single items, and the exact position after each item. No IO.

The position after an item is what a reader saves to continue with the next one, even when the item
stands in the middle of a batch or a character of text spans two appends.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterator
from operator import length_hint
from typing import Any, Generic, Protocol, TypeVar

from headwater.client.errors import InvalidMessage
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.state import Change, MaterializedState

T = TypeVar("T")


class Unpacker(Protocol[T]):
    """A way to take batches apart."""

    def unpack(self, batch: Batch) -> list[T]:
        """The batch's items. Failing must change nothing: the batch may be tried again."""
        ...

    def position(self, batch: Batch, taken: int, total: int) -> Position:
        """The place after the first `taken` of the batch's `total` items."""
        ...


class UnpackMessages(Unpacker[Any]):
    """One item per JSON message."""

    def __init__(self, type: Any = Any) -> None:
        self._type = type

    def unpack(self, batch: Batch) -> list[Any]:
        return batch.messages(self._type) if batch else []

    def position(self, batch: Batch, taken: int, total: int) -> Position:
        if taken == total:
            return batch.position
        return Position(batch.start.offset, batch.start.skip + taken)


class UnpackBytes(Unpacker[bytes]):
    """One item per batch."""

    def unpack(self, batch: Batch) -> list[bytes]:
        return [batch.data] if batch else []

    def position(self, batch: Batch, taken: int, total: int) -> Position:
        return batch.position if taken == total else batch.start


class UnpackText(Unpacker[str]):
    """One item per batch, cut between characters.

    An append may end in the middle of a character. Its first bytes are kept until the rest comes,
    and until then the position stays in front of them.
    """

    def __init__(self) -> None:
        self._carry = b""
        self._carry_start = Position()

    def unpack(self, batch: Batch) -> list[str]:
        data = self._carry + batch.data
        try:
            text, used = utf_8_decode(data, "strict", batch.closed)
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"no UTF-8 text after {batch.start}: {error}") from error
        begin = self._carry_start if self._carry else batch.start
        self._carry = data[used:]
        self._carry_start = Position(begin.offset, begin.skip + used)
        return [text] if text else []

    def position(self, batch: Batch, taken: int, total: int) -> Position:
        if taken < total:
            return batch.start
        return self._carry_start if self._carry else batch.position


class UnpackChanges(Unpacker[Change]):
    """One item per change of a materialized state.

    The state holds the whole batch as soon as it is applied, so that is where the position is.
    """

    def __init__(self, state: MaterializedState) -> None:
        self._state = state

    def unpack(self, batch: Batch) -> list[Change]:
        return self._state.apply(batch)

    def position(self, batch: Batch, taken: int, total: int) -> Position:
        return batch.position


class ItemQueue(Generic[T]):
    """The items of the current batch that have not been taken yet.

    They are taken straight from `iterator`, because that costs least, and the position follows
    from how many are left.
    """

    def __init__(self, unpacker: Unpacker[T], start: Position) -> None:
        self._unpacker = unpacker
        self._start = start
        self._batch: Batch | None = None
        self._total = 0
        self.iterator: Iterator[T] = iter(())

    def begin(self, start: Position) -> None:
        """Where the first batch begins, if that was not known before."""
        self._start = start

    def load(self, batch: Batch) -> None:
        """Go on with the next batch, once the last one is empty."""
        items = self._unpacker.unpack(batch)
        self._batch, self._total, self.iterator = batch, len(items), iter(items)

    def __bool__(self) -> bool:
        """Whether any items are left."""
        return length_hint(self.iterator) > 0

    @property
    def position(self) -> Position:
        """The place after the last item taken."""
        if self._batch is None:
            return self._start
        taken = self._total - length_hint(self.iterator)
        return self._unpacker.position(self._batch, taken, self._total)
