"""Every setting of the server, with its default, once.

A setting can come from a command line flag, an environment variable (`HEADWATER_` and its name in
capitals) or a TOML file, in that order of precedence. The flags of `headwater serve` and the
configuration reference are made from this class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from headwater.core.limits import Limits

_LIMITS = Limits()


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWATER_", extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(4437, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data: Path = Field(Path("data"), description="Directory that holds the streams.")
    memory: bool = Field(False, description="Keep everything in memory; nothing survives.")
    insecure: bool = Field(
        False, description="Allow an address other than loopback although access is open to all."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line to print."
    )
    log_format: Literal["console", "json"] = Field("console", description="How log lines look.")
    access_log: bool = Field(False, description="Log every request.")
    slow_request_ms: int = Field(
        1_000, ge=0, description="Log requests that take longer; 0 logs none."
    )
    otel: bool = Field(
        False, description="Send traces with OpenTelemetry; its OTEL_… variables say where."
    )
    long_poll_timeout_ms: int = Field(
        30_000, ge=1, le=600_000, description="How long a long-poll waits for data."
    )
    sse_lifetime_ms: int = Field(
        60_000, ge=100, le=86_400_000, description="About how long an SSE connection stays open."
    )
    linger_ms: int = Field(
        0, ge=0, le=1_000, description="Wait this long for more appends before each commit."
    )
    shutdown_grace_ms: int = Field(
        10_000, ge=0, le=600_000, description="How long requests may take to finish on shutdown."
    )
    cors_origin: str = Field(
        "*", description="Value of Access-Control-Allow-Origin; empty sends no CORS headers."
    )
    body_bytes_max: int = Field(
        _LIMITS.body_bytes_max, ge=1, description="Largest request body (413 beyond)."
    )
    header_bytes_max: int = Field(
        _LIMITS.header_bytes_max, ge=1024, description="Largest request head (431 beyond)."
    )
    connections_max: int = Field(
        _LIMITS.connections_max, ge=1, description="Open connections (503 beyond)."
    )
    chunk_bytes_max: int = Field(
        _LIMITS.chunk_bytes_max, ge=1, description="Most data in one read response or SSE event."
    )
    queue_bytes_max: int = Field(
        _LIMITS.queue_bytes_max, ge=1, description="Appends waiting for a commit (429 beyond)."
    )
    readers_per_stream_max: int = Field(
        _LIMITS.readers_per_stream_max, ge=1, description="Live readers of a stream (429 beyond)."
    )
    reader_buffer_bytes_max: int = Field(
        _LIMITS.reader_buffer_bytes_max,
        ge=1024,
        description="Unread data of an SSE reader before it is cut off.",
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
    producer_window: int = Field(
        _LIMITS.producer_window,
        ge=0,
        description="How far a producer's request may overtake others and still wait for them.",
    )
    producer_wait_ms: int = Field(
        _LIMITS.producer_wait_ms, ge=0, description="How long such a request waits."
    )

    def limits(self) -> Limits:
        names = [name for name in Limits.__dataclass_fields__ if name in type(self).model_fields]
        return Limits(**{name: getattr(self, name) for name in names})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = TomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, toml


def load_settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """Settings from flags, environment and an optional TOML file."""

    class WithFile(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    return WithFile(**flags)
