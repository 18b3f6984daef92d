"""The blocking client. Written by scripts/make_sync.py from aio/reader.py: DO NOT EDIT."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, overload

from headwater.client.aio.reader import AsyncItems, AsyncReader
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.state import Change, MaterializedState
from headwater.client.sync.portal import Blocking, BlockingContext

T = TypeVar("T")


class Reader(BlockingContext[AsyncReader]):
    """One pass over a stream, from a position to its end, or for as long as the stream exists.

    Iterate over the reader itself for batches, or over one of `messages`, `text`, `bytes` and
    `changes` for items. Nothing is requested before you ask for the first item.

        with stream.follow(saved_position) as reader:
            for message in reader.messages():
                handle(message)
                save(str(reader.position))

    You can stop at any time and lose nothing: `position` is always after the last item that was
    yielded, and you can use the same reader again. The reader survives lost connections and busy
    servers; an error it raises is final.
    """

    @property
    def position(self) -> Position:
        """The place after everything that has been yielded; save it to resume."""
        return self._async.position

    @property
    def up_to_date(self) -> bool:
        """Whether everything that the server had when it last answered has been yielded."""
        return self._async.up_to_date

    @property
    def closed(self) -> bool:
        """Whether the stream is closed and has been yielded to its end."""
        return self._async.closed

    @property
    def close_reason(self) -> str | None:
        """Why a durable response ended early, once it has been yielded to its end."""
        return self._async.close_reason

    def next_batch(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch; None at the end. Raises `TimeoutError` if nothing arrived in time."""
        return self._portal.call(self._async.next_batch(timeout_s))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = self._portal.call(self._async.next_batch())
        if batch is None:
            raise StopIteration
        return batch

    @overload
    def messages(self) -> Items[Any]: ...
    @overload
    def messages(self, type: type[T]) -> Items[T]: ...
    def messages(self, type: Any = Any) -> Items[Any]:
        """The JSON messages one by one.

        With a `type` (a dataclass, a msgspec struct, a pydantic model, …) they are converted to it;
        an `InvalidMessage` names the first one that does not match.
        """
        return Items(self._portal, self._async.messages(type))

    def text(self) -> Items[str]:
        """The stream as pieces of text, never split inside a character.

        A server splits text into lines to send it as events, so over `live="sse"` every line break
        arrives as a line feed.
        """
        return Items(self._portal, self._async.text())

    def bytes(self) -> Items[bytes]:
        """The stream as pieces of bytes."""
        return Items(self._portal, self._async.bytes())

    def changes(self, state: MaterializedState) -> Items[Change]:
        """Apply a State Protocol stream to `state`, and yield what changes."""
        return Items(self._portal, self._async.changes(state))

    def close(self) -> None:
        """Release the connection. You can use the reader again; it reconnects."""
        self._portal.call(self._async.aclose())


class Items(Blocking[AsyncItems[T]], Generic[T]):
    """The items of a reader, one at a time."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while True:
            for item in self._async._queue.iterator:
                return item
            if not self._portal.call(self._async._fetch()):
                raise StopIteration
            self._async._unpack()
