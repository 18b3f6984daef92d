"""The messages that wait for a producer to send them. No IO.

A batch is due when it is full or its oldest message has waited for `linger_s`. A batch that is due
but cannot be sent yet goes on growing, so a slow server makes batches larger, not queues longer.
The buffer counts what it holds until that is settled: `has_room` is the producer's back-pressure.

Adding is safe from any thread, so that a caller on another thread than the producer's event loop
does not pay for a hand-over per message. `add` says when the producer has to be woken: with the
first message and with the one that fills a batch. For all others it is awake or has a timer set.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

P = TypeVar("P")


@dataclass(slots=True)
class Parcel(Generic[P]):
    """Consecutive messages that go into one batch."""

    first: int
    messages: list[bytes]
    payloads: list[P]
    size: int


class MessageBuffer(Generic[P]):
    """A queue of encoded messages, each with a payload of the caller's."""

    def __init__(
        self, *, max_bytes: int, max_batch_bytes: int, max_batch_messages: int, linger_s: float
    ) -> None:
        self.added = 0
        self._max_bytes = max_bytes
        self._max_batch_bytes = max_batch_bytes
        self._max_batch_messages = max_batch_messages
        self._linger_s = linger_s
        self._queue: deque[tuple[bytes, P, float]] = deque()
        self._queued_bytes = 0
        self._held_bytes = 0
        self._flush_until = 0
        self._lock = threading.Lock()

    def has_room(self, size: int) -> bool:
        """Whether a message fits. An empty buffer takes any one, or it could never be sent."""
        return not self._held_bytes or self._held_bytes + size <= self._max_bytes

    def add(self, message: bytes, payload: P, *, now: float) -> bool:
        """Put a message after all others; True if the producer has to be woken."""
        with self._lock:
            was_empty, was_full = not self._queue, self.is_full()
            self._queue.append((message, payload, now))
            self._queued_bytes += len(message)
            self._held_bytes += len(message)
            self.added += 1
            return was_empty or (self.is_full() and not was_full)

    def flush(self) -> None:
        """Let nothing that is here now linger any longer."""
        with self._lock:
            self._flush_until = self.added

    def due_at(self) -> float | None:
        """When the next batch is due: None without messages, in the past when it is full."""
        with self._lock:
            if not self._queue:
                return None
            if self.is_full() or self.first < self._flush_until:
                return 0.0
            return self._queue[0][2] + self._linger_s

    def is_full(self) -> bool:
        """Whether there is enough for a batch of the largest size."""
        return (
            self._queued_bytes >= self._max_batch_bytes
            or len(self._queue) >= self._max_batch_messages
        )

    def take(self) -> Parcel[P]:
        """Remove the messages of the next batch: at least one, then as many as fit."""
        with self._lock:
            parcel: Parcel[P] = Parcel(self.first, [], [], 0)
            while self._queue and len(parcel.messages) < self._max_batch_messages:
                message, payload, _ = self._queue[0]
                if parcel.messages and parcel.size + len(message) > self._max_batch_bytes:
                    break
                self._queue.popleft()
                parcel.messages.append(message)
                parcel.payloads.append(payload)
                parcel.size += len(message)
            self._queued_bytes -= parcel.size
            return parcel

    def release(self, parcel: Parcel[P]) -> None:
        """The messages of a parcel are settled and no longer held."""
        with self._lock:
            self._held_bytes -= parcel.size

    @property
    def first(self) -> int:
        """The number of the first message that has not been taken; they count from 0."""
        return self.added - len(self._queue)
