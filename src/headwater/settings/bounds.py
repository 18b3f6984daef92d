"""What the server takes on before it refuses more; see `headwater.core.limits`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import BaseSettings

from headwater.core.limits import TTL_SECONDS_MAX, Limits
from headwater.core.quotas import parse_quotas
from headwater.settings.fields import parsed_by

_LIMITS: Final = Limits()


class BoundSettings(BaseSettings):
    body_bytes_max: int = Field(
        _LIMITS.body_bytes_max, ge=1, description="Largest request body (413 beyond)."
    )
    bodies_bytes_max: int = Field(
        _LIMITS.bodies_bytes_max,
        ge=2,
        description="Total size of request bodies in memory (503 beyond); one key, token or "
        "address gets at most half of what others leave.",
    )
    messages_per_append_max: int = Field(
        _LIMITS.messages_per_append_max,
        ge=1,
        description="Messages in one append to a JSON stream (413 beyond).",
    )
    header_bytes_max: int = Field(
        _LIMITS.header_bytes_max, ge=1024, description="Largest request head (431 beyond)."
    )
    header_count_max: int = Field(
        _LIMITS.header_count_max, ge=1, description="Headers in a request (431 beyond)."
    )
    connections_max: int = Field(
        _LIMITS.connections_max, ge=1, description="Open connections (503 beyond)."
    )
    connections_per_address_max: int = Field(
        _LIMITS.connections_per_address_max,
        ge=0,
        description="Open connections from one address (503 beyond); 0 for no limit.",
    )
    requests_per_s_max: int = Field(
        _LIMITS.requests_per_s_max,
        ge=0,
        description="Requests per second from one key or token, or otherwise from one address (429 "
        "beyond); 0 for no limit.",
    )
    bytes_per_s_max: int = Field(
        _LIMITS.bytes_per_s_max,
        ge=0,
        description="Bytes per second in request and response bodies, counted the same way (429 "
        "beyond); 0 for no limit.",
    )
    chunk_bytes_max: int = Field(
        _LIMITS.chunk_bytes_max, ge=1, description="Most data in one read response or SSE event."
    )
    queue_bytes_max: int = Field(
        _LIMITS.queue_bytes_max, ge=1, description="Appends waiting for a commit (429 beyond)."
    )
    quotas: Annotated[str, parsed_by(parse_quotas)] = Field(
        "",
        description="How much each part of the namespace may hold (403 beyond), separated by "
        "semicolons: tenants/*: streams=1000 bytes=10GiB producers=5000; **: streams=100000.",
    )
    undelete_grace_s: int = Field(
        3_600,
        ge=0,
        le=366 * 24 * 3_600,
        description="How long deleted streams can still be undeleted; 0 to drop them at once.",
    )
    deleted_streams_max: int = Field(
        _LIMITS.deleted_streams_max,
        ge=0,
        description="Deleted streams to keep; beyond that, the oldest are dropped.",
    )
    readers_per_stream_max: int = Field(
        _LIMITS.readers_per_stream_max, ge=1, description="Live readers of a stream (429 beyond)."
    )
    reader_buffer_bytes_max: int = Field(
        _LIMITS.reader_buffer_bytes_max,
        ge=1024,
        description="Unread data of an SSE reader before it is cut off.",
    )
    readers_per_caller_max: int = Field(
        _LIMITS.readers_per_caller_max,
        ge=0,
        description="Live reads from one key or token, or otherwise from one address (429 beyond); "
        "0 for no limit.",
    )
    buffers_bytes_max: int = Field(
        _LIMITS.buffers_bytes_max,
        ge=1024,
        description="Unread data of all connections together; beyond that, reads get 503 and slow "
        "readers are cut off.",
    )
    hot_bytes_per_stream_max: int = Field(
        _LIMITS.hot_bytes_per_stream_max, ge=0, description="Tail of a stream kept in memory."
    )
    hot_bytes_max: int = Field(
        _LIMITS.hot_bytes_max, ge=0, description="Tails of all streams kept in memory."
    )
    streams_in_memory_max: int = Field(
        _LIMITS.streams_in_memory_max, ge=16, description="Idle streams kept loaded."
    )
    live_waiters_max: int = Field(
        100_000, ge=1, description="Queries waiting for changes at a time (429 beyond)."
    )
    live_metrics: bool = Field(
        True, description="Record activity on live streams in the stream live.metrics."
    )
    producers_per_stream_max: int = Field(
        _LIMITS.producers_per_stream_max,
        ge=1,
        description="Idempotent producers that a stream remembers (403 beyond).",
    )
    producer_expiry_s: int = Field(
        _LIMITS.producer_expiry_s,
        ge=3600,
        le=TTL_SECONDS_MAX,
        description="How long a stream remembers a producer that sends nothing.",
    )
    producer_window: int = Field(
        _LIMITS.producer_window,
        ge=0,
        description="How far ahead of missing requests a producer's request may be and still wait.",
    )
    producer_wait_ms: int = Field(
        _LIMITS.producer_wait_ms, ge=0, le=600_000, description="How long such a request waits."
    )

    def limits(self) -> Limits:
        names = [name for name in Limits.__dataclass_fields__ if name in type(self).model_fields]
        return Limits(**{name: getattr(self, name) for name in names})
