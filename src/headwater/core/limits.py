"""All limits of the system in one place, checked against each other.

Sizes are in bytes, counts are plain numbers, and names of times end in their unit.

Together they bound the memory of a server (`Limits.memory_bytes_max`), whatever clients do:

- what is queued: bodies and the stored form of each, appends before their commit, answers that
  nobody reads, and hot tails
- copies of the largest possible body: two while SQLite writes it, two while it is sealed
- SQLite's cache, two answers of `_bulk` being built, the process itself and the committer
- a head and a small body for every connection, and the entry of every stream in use
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

# Fixed by the wire contract, so not configurable.
PATH_BYTES_MAX = 1024
SEGMENT_CHARS_MAX = 256
PRODUCER_NUMBER_MAX = 2**53 - 1
PRODUCER_ID_CHARS_MAX = 256
STREAM_SEQ_CHARS_MAX = 256
CONTENT_TYPE_CHARS_MAX = 256
TTL_SECONDS_MAX = 100 * 365 * 24 * 3600
LIST_PAGE_MAX = 1000
MESSAGE_ID_CHARS_MAX = 256
POINTER_CHARS_MAX = 256
RETENTION_BYTES_MAX = 2**53 - 1
DESCRIPTION_CHARS_MAX = 1024
VERSION_MAX = 2**31 - 1
# Bodies that are instructions, not data to store.
CONTROL_BODY_BYTES_MAX = 4 * MIB
# Streams that one connection can follow.
FOLLOWED_MAX = 256

# Memory, besides what can be configured.
PROCESS_BYTES = 128 * MIB
ENGINE_CACHE_BYTES = 64 * MIB
COMMITTER_BYTES = ENGINE_CACHE_BYTES + 64 * MIB
BULK_BYTES = 2 * 80 * MIB
CONNECTION_BYTES = 32 * KIB
STREAM_BYTES = 4 * KIB
_COPIES = 4

# Groups: how much a member gets at a time. A single message may be larger.
FETCH_BYTES_MAX = 8 * MIB
PUSH_BYTES_MAX = 256 * KIB
DEAD_LETTERS_BYTES_MAX = 4 * MIB

# Access: what one key or token can carry, and how many there can be.
PATTERNS_MAX = 100
KEYS_MAX = 10_000
KEY_NAME_CHARS_MAX = 200
TOKEN_BYTES_MAX = 8 * KIB
SIGNED_SECONDS_MAX = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server accepts before it refuses. All of it can be configured.

    A default of 0 means no limit.
    """

    body_bytes_max: int = 64 * MIB
    bodies_bytes_max: int = 256 * MIB
    messages_per_append_max: int = 100_000
    header_bytes_max: int = 16 * KIB
    header_count_max: int = 100
    connections_max: int = 20_000
    connections_per_address_max: int = 0
    chunk_bytes_max: int = MIB
    queue_bytes_max: int = 128 * MIB
    readers_per_stream_max: int = 10_000
    readers_per_caller_max: int = 10_000
    reader_buffer_bytes_max: int = MIB
    buffers_bytes_max: int = 512 * MIB
    requests_per_s_max: int = 0
    bytes_per_s_max: int = 0
    hot_bytes_per_stream_max: int = MIB
    hot_bytes_max: int = 256 * MIB
    streams_in_memory_max: int = 20_000
    producers_preloaded_max: int = 1_000
    producers_per_stream_max: int = 100_000
    producer_expiry_s: int = 7 * 24 * 3600
    producer_window: int = 5
    producer_wait_ms: int = 100
    subscriptions_max: int = 1_000
    webhooks_at_once_max: int = 64
    webhook_timeout_ms: int = 30_000
    # How long deleted streams are kept, and how many of them; see `core.decisions.undelete`.
    undelete_grace_s: int = 0
    deleted_streams_max: int = 10_000

    def __post_init__(self) -> None:
        self._require(self.body_bytes_max >= 1, "body_bytes_max must be at least 1")
        self._require(
            self.queue_bytes_max >= self.body_bytes_max,
            "queue_bytes_max must hold at least one body of body_bytes_max",
        )
        self._require(
            self.bodies_bytes_max >= 2 * self.body_bytes_max,
            "bodies_bytes_max must hold at least two bodies of body_bytes_max",
        )
        self._require(
            self.messages_per_append_max >= 1, "messages_per_append_max must be at least 1"
        )
        self._require(self.chunk_bytes_max >= 1, "chunk_bytes_max must be at least 1")
        self._require(self.header_bytes_max >= KIB, "header_bytes_max must be at least 1024")
        self._require(
            self.hot_bytes_max >= self.hot_bytes_per_stream_max,
            "hot_bytes_max must be at least hot_bytes_per_stream_max",
        )
        self._require(self.streams_in_memory_max >= 16, "streams_in_memory_max must be at least 16")
        self._require(
            self.producers_per_stream_max >= 1, "producers_per_stream_max must be at least 1"
        )
        self._require(self.producer_expiry_s >= 3600, "producer_expiry_s must be at least 3600")
        self._require(self.webhooks_at_once_max >= 1, "webhooks_at_once_max must be at least 1")
        self._require(self.connections_max >= 1, "connections_max must be at least 1")
        self._require(
            self.connections_per_address_max <= self.connections_max,
            "connections_per_address_max must be at most connections_max",
        )
        self._require(self.header_count_max >= 1, "header_count_max must be at least 1")
        self._require(
            self.buffers_bytes_max >= self.reader_buffer_bytes_max,
            "buffers_bytes_max must hold at least one reader_buffer_bytes_max",
        )

    @property
    def answer_bytes_max(self) -> int:
        """More than any node sends at once: a body in any form, an answer of `_bulk`, or what one
        commit added to a stream.
        """
        return 2 * self.body_bytes_max + self.queue_bytes_max + BULK_BYTES

    @property
    def memory_bytes_max(self) -> int:
        """The most memory a server uses; see the module docstring."""
        waiting = 2 * self.bodies_bytes_max + self.queue_bytes_max + self.buffers_bytes_max
        crowds = self.connections_max * CONNECTION_BYTES + self.streams_in_memory_max * STREAM_BYTES
        fixed = PROCESS_BYTES + ENGINE_CACHE_BYTES + COMMITTER_BYTES + BULK_BYTES
        return waiting + self.hot_bytes_max + _COPIES * self.body_bytes_max + crowds + fixed

    @staticmethod
    def _require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise ValueError(otherwise)
