"""Every setting of the server, with its default, once.

A setting can come from a command line flag, an environment variable (`HEADWATER_` and its name in
capitals) or a TOML file, in that order of precedence. The flags of `headwater serve` and the
configuration reference are made from this class.
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from headwater.core.browsers import parse_hosts, parse_origins
from headwater.core.cluster import parse_labels
from headwater.core.limits import MIB, Limits
from headwater.core.quotas import parse_quotas
from headwater.core.responses.allow_list import parse_networks, parse_patterns
from headwater.core.responses.policy import ResponsePolicy
from headwater.documents.policy import Policy as DocumentPolicy
from headwater.store.history.policies import ArchivePolicy, SealPolicy

_POSTGRESQL: Final = ("postgresql://", "postgres://")
_LIMITS = Limits()
_SEAL = SealPolicy()
_RESPONSES = ResponsePolicy()
_DOCUMENTS = DocumentPolicy()
_LOCAL_BYTES_MAX = ArchivePolicy("").local_bytes_max
_CACHE_BYTES_MAX = ArchivePolicy("").cache_bytes_max


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HEADWATER_", extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(4437, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data: Path = Field(Path("data"), description="Directory that holds the streams.")
    memory: bool = Field(False, description="Keep everything in memory; nothing survives.")
    engine: str = Field(
        "sqlite",
        description="What keeps the streams: sqlite (in the data directory), memory, or the "
        "address of a PostgreSQL database (postgresql://HOST/DATABASE).",
    )
    engine_lease_ms: int = Field(
        3_000,
        ge=300,
        le=600_000,
        description="How long a node that is gone keeps others out of its PostgreSQL database.",
    )
    advertise: str = Field(
        "",
        description="Where other nodes that share the PostgreSQL database reach this one "
        "(http://HOST:PORT); empty: it has the database for itself.",
    )
    label: str = Field(
        "",
        description="What this node of a cluster is, such as region=eu; several with commas. "
        "Prefixes that are bound to a label are served by nodes that have it.",
    )
    insecure: bool = Field(
        False, description="Allow an address other than loopback although access is open to all."
    )
    access: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether requests need a key or token; auto: if there are keys, or tokens are "
        "set up.",
    )
    keys_file: str = Field(
        "",
        description="File of API keys; none: keys.json in the data directory, or the database of "
        "the engine.",
    )
    signing_secret_file: str = Field(
        "",
        description="File with the secret for signed addresses; none: made in the data directory, "
        "or in the database of the engine.",
    )
    jwt_secret_file: str = Field(
        "", description="File with the secret that tokens are signed with (HS256)."
    )
    jwt_jwks: str = Field(
        "",
        description="File or https address of the public keys for tokens, a JWK set (RS256, "
        "ES256, EdDSA).",
    )
    jwt_audience: str = Field("", description="What tokens must name as their audience.")
    jwt_issuer: str = Field("", description="What tokens must name as their issuer.")
    jwt_leeway_ms: int = Field(
        10_000, ge=0, le=600_000, description="How far the clocks of token issuers may be off."
    )
    jwt_claim: str = Field("headwater", description="Claim of a token that holds its grants.")
    tls_cert: str = Field("", description="Certificate chain in PEM; serves https.")
    tls_key: str = Field("", description="Private key of the certificate, in PEM.")
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
        "auto",
        description="Origins whose pages may use this server, with commas between them; * for all, "
        "empty for none. auto: all with access control, none without.",
    )
    allowed_host: str = Field(
        "",
        description="Names by which this server is known besides its addresses, localhost and the "
        "one in its public URL, with commas between them; * for any. Without access control, "
        "requests for other names are refused (421).",
    )
    console: bool = Field(True, description="Show the server to browsers under /console/.")
    body_bytes_max: int = Field(
        _LIMITS.body_bytes_max, ge=1, description="Largest request body (413 beyond)."
    )
    bodies_bytes_max: int = Field(
        _LIMITS.bodies_bytes_max,
        ge=2,
        description="Request bodies in memory, all together (503 beyond); one key, token or "
        "address gets half of what others leave.",
    )
    messages_per_append_max: int = Field(
        _LIMITS.messages_per_append_max,
        ge=1,
        description="Messages of one append to a JSON stream (413 beyond).",
    )
    header_bytes_max: int = Field(
        _LIMITS.header_bytes_max, ge=1024, description="Largest request head (431 beyond)."
    )
    header_count_max: int = Field(
        _LIMITS.header_count_max, ge=1, description="Headers of a request (431 beyond)."
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
        description="Requests in a second by key or token, or else by address (429 beyond); 0 for "
        "no limit.",
    )
    bytes_per_s_max: int = Field(
        _LIMITS.bytes_per_s_max,
        ge=0,
        description="Bodies of requests and answers in a second, counted likewise (429 beyond); 0 "
        "for no limit.",
    )
    chunk_bytes_max: int = Field(
        _LIMITS.chunk_bytes_max, ge=1, description="Most data in one read response or SSE event."
    )
    queue_bytes_max: int = Field(
        _LIMITS.queue_bytes_max, ge=1, description="Appends waiting for a commit (429 beyond)."
    )
    quotas: str = Field(
        "",
        description="How much parts of the namespace may hold (403 beyond), with semicolons "
        "between them: tenants/*: streams=1000 bytes=10GiB producers=5000; **: streams=100000.",
    )
    undelete_grace_s: int = Field(
        3_600,
        ge=0,
        le=366 * 24 * 3_600,
        description="How long deleted streams are kept, so that they can be undeleted; 0 for not "
        "at all.",
    )
    deleted_streams_max: int = Field(
        _LIMITS.deleted_streams_max,
        ge=0,
        description="Deleted streams kept; beyond, the oldest go.",
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
        description="Live reads of one key or token, or else of one address (429 beyond); 0 for "
        "no limit.",
    )
    buffers_bytes_max: int = Field(
        _LIMITS.buffers_bytes_max,
        ge=1024,
        description="Unread data of all connections together (503 for reads beyond, and slow "
        "readers are cut off).",
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
        100_000, ge=1, description="Queries that wait for changes at a time (429 beyond)."
    )
    live_metrics: bool = Field(
        True, description="Write what happens on live streams to the stream live.metrics."
    )
    producers_per_stream_max: int = Field(
        _LIMITS.producers_per_stream_max,
        ge=1,
        description="Idempotent producers that a stream knows (403 for one more).",
    )
    producer_expiry_s: int = Field(
        _LIMITS.producer_expiry_s,
        ge=3600,
        description="How long a stream remembers a producer that sends nothing.",
    )
    producer_window: int = Field(
        _LIMITS.producer_window,
        ge=0,
        description="How far a producer's request may overtake others and still wait for them.",
    )
    producer_wait_ms: int = Field(
        _LIMITS.producer_wait_ms, ge=0, description="How long such a request waits."
    )

    seal: bool = Field(True, description="Move older data from the database into files of history.")
    seal_after_bytes: int = Field(
        _SEAL.after_bytes, ge=1, description="Seal a stream that has this much in the database."
    )
    seal_after_ms: int = Field(
        _SEAL.after_ms, ge=0, description="Seal what has been in the database this long."
    )
    database_bytes_max: int = Field(
        _SEAL.database_bytes_max,
        ge=1,
        description="Data of all streams in the database; beyond, the largest are sealed.",
    )
    segment_bytes: int = Field(
        _SEAL.segment_bytes,
        ge=1024,
        le=1024 * MIB,
        description="About the size of a file of history.",
    )
    compact_bytes_per_second: int = Field(
        _SEAL.compact_bytes_per_second,
        ge=0,
        description="How fast small or hardly needed files of history are rewritten; 0 for never.",
    )

    documents: bool = Field(
        False,
        description="Serve collaborative documents (Yjs); needs headwater[documents].",
    )
    documents_prefix: str = Field(
        "/v1/yjs", description="Where documents are: PREFIX/{service}/docs/{path}."
    )
    documents_compact_bytes: int = Field(
        _DOCUMENTS.compact_bytes,
        ge=1,
        description="Compact a document when this much was written after its snapshot.",
    )
    documents_retention_s: int = Field(
        _DOCUMENTS.retention_s,
        ge=0,
        description="When a document is compacted, drop updates that are older; 0 keeps them.",
    )
    documents_workers: int = Field(
        _DOCUMENTS.workers, ge=1, le=64, description="Documents loaded at a time, to compact them."
    )
    documents_worker_bytes_max: int = Field(
        _DOCUMENTS.worker_memory_bytes,
        ge=256 * MIB,
        description="Memory of a process that loads a document; a larger one is not compacted.",
    )
    documents_worker_timeout_ms: int = Field(
        int(1000 * _DOCUMENTS.worker_timeout_s),
        ge=100,
        le=3_600_000,
        description="How long such a process may take.",
    )

    subscriptions_max: int = Field(
        _LIMITS.subscriptions_max, ge=0, description="Subscriptions of the server (429 beyond)."
    )
    webhooks_at_once_max: int = Field(
        _LIMITS.webhooks_at_once_max, ge=1, description="Requests to webhooks at a time."
    )
    webhook_timeout_ms: int = Field(
        _LIMITS.webhook_timeout_ms,
        ge=100,
        le=600_000,
        description="How long a webhook may take to answer.",
    )
    webhook_local: Literal["auto", "allow", "refuse"] = Field(
        "auto",
        description="Webhooks on http://localhost and http://127.0.0.x. auto allows them when the "
        "server listens on loopback only and has no public URL.",
    )
    proxy_allow: str = Field(
        "",
        description="Addresses that durable responses may come from, with commas between them: "
        "https://api.example.com/v1/*, https://*.example.com. Empty for none.",
    )
    proxy_networks: str = Field(
        "",
        description="Private networks that names among those may lead to, with commas between "
        "them: 10.0.0.0/8.",
    )
    proxy_head_timeout_ms: int = Field(
        _RESPONSES.head_timeout_ms,
        ge=1,
        le=3_600_000,
        description="How long an upstream may take to begin its answer (504 beyond).",
    )
    proxy_idle_timeout_ms: int = Field(
        _RESPONSES.idle_timeout_ms,
        ge=1,
        le=86_400_000,
        description="How long an upstream may send nothing before its response is ended.",
    )
    proxy_response_bytes_max: int = Field(
        _RESPONSES.response_bytes_max,
        ge=1,
        description="Largest durable response; beyond, it is ended.",
    )
    proxy_requests_max: int = Field(
        _RESPONSES.requests_max,
        ge=1,
        description="Requests to upstreams at a time (429 beyond).",
    )
    proxy_requests_per_caller_max: int = Field(
        _RESPONSES.requests_per_caller_max,
        ge=1,
        description="Those of one key or token, or else of one address (429 beyond).",
    )
    proxy_ttl_s: int = Field(
        _RESPONSES.ttl_s,
        ge=1,
        le=366 * 24 * 3_600,
        description="How long durable responses and their signed addresses last.",
    )
    public_url: str = Field(
        "", description="How others reach this server, for callbacks; by default as they did."
    )

    @property
    def engine_kind(self) -> Literal["sqlite", "memory", "postgresql"]:
        if self.engine.startswith(_POSTGRESQL):
            return "postgresql"
        return "memory" if self.memory or self.engine == "memory" else "sqlite"

    @property
    def engine_place(self) -> str:
        """Where the streams are, for people to read: without names and passwords."""
        if self.engine_kind == "postgresql":
            address = urlsplit(self.engine)
            return f"PostgreSQL at {address.netloc.rpartition('@')[2]}{address.path}"
        return str(self.data) if self.engine_kind == "sqlite" else "memory"

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine not in ("sqlite", "memory") and not self.engine.startswith(_POSTGRESQL):
            raise ValueError("engine must be sqlite, memory or postgresql://HOST/DATABASE")
        if self.memory and self.engine_kind != "memory":
            raise ValueError("choose one: memory, or an engine that keeps the streams")
        if self.advertise and self.engine_kind != "postgresql":
            raise ValueError("only nodes that share a PostgreSQL database advertise an address")
        if self.history_store and self.engine_kind == "postgresql":
            raise ValueError(
                "the PostgreSQL engine keeps everything in the database so far; leave "
                "history_store out"
            )
        return self

    @model_validator(mode="after")
    def _check_sense(self) -> Self:
        """Refuse what would have no effect: whoever says it expects one."""
        if self.history_store and self.engine_kind == "memory":
            raise ValueError("streams in memory have no history; leave history_store out")
        if self.history_store and not self.seal:
            raise ValueError("only what is sealed is brought to history_store; set seal")
        if (self.jwt_issuer or self.jwt_audience) and not (self.jwt_secret_file or self.jwt_jwks):
            raise ValueError("no tokens are accepted without jwt_secret_file or jwt_jwks")
        if self.proxy_networks and not self.proxy_allow.strip():
            raise ValueError("proxy_networks is for addresses in proxy_allow, which is empty")
        return self

    @property
    def listens_on_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def allows_local_webhooks(self) -> bool:
        if self.webhook_local != "auto":
            return self.webhook_local == "allow"
        return self.listens_on_loopback and not self.public_url

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        """No file, host or address has characters that cannot be printed."""
        if isinstance(value, str | Path) and not str(value).isprintable():
            raise ValueError("has a character that cannot be printed")
        return value

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        try:
            if value.encode("idna"):
                return value
        except UnicodeError:
            pass
        raise ValueError("must be an address of this machine or a name of it")

    @field_validator("data", mode="before")
    @classmethod
    def _check_data(cls, value: Any) -> Any:
        if value == "":
            raise ValueError("must name a directory; . is the current one")
        return value

    @field_validator("label")
    @classmethod
    def _check_label(cls, value: str) -> str:
        parse_labels(value)
        return value

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, value: str) -> str:
        with suppress(ValueError):
            address = urlsplit(value)
            _ = address.port
            plain = not (address.path.strip("/") or address.query or address.username)
            if not value or (address.scheme in ("http", "https") and address.hostname and plain):
                return value.rstrip("/")
        raise ValueError("must be an address such as http://node1.example.com:4437")

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str) -> str:
        with suppress(ValueError):
            address = urlsplit(value)
            _ = address.port
            if not value or (address.scheme in ("http", "https") and address.hostname):
                return value
        raise ValueError("must be an address such as https://streams.example.com")

    @field_validator("documents_prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        if re.fullmatch(r"(/[A-Za-z0-9_.~-]+)+", value) and not value.startswith("/v1/stream"):
            return value
        raise ValueError("must be a path such as /v1/yjs, and none of the server's own")

    @field_validator("cors_origin")
    @classmethod
    def _check_origins(cls, value: str) -> str:
        parse_origins("" if value == "auto" else value)
        return value

    @field_validator("quotas")
    @classmethod
    def _check_quotas(cls, value: str) -> str:
        parse_quotas(value)
        return value

    @field_validator("proxy_allow")
    @classmethod
    def _check_proxy_allow(cls, value: str) -> str:
        parse_patterns(value)
        return value

    @field_validator("proxy_networks")
    @classmethod
    def _check_proxy_networks(cls, value: str) -> str:
        parse_networks(value)
        return value

    @field_validator("allowed_host")
    @classmethod
    def _check_hosts(cls, value: str) -> str:
        parse_hosts(value)
        return value

    def origins(self, *, access: bool) -> frozenset[str] | None:
        """Whose pages may use the server; None for everyone's."""
        if self.cors_origin == "auto":
            return None if access else frozenset()
        return parse_origins(self.cors_origin)

    def hosts(self, *, access: bool) -> frozenset[str] | None:
        """By which names the server may be asked; None for any."""
        names = parse_hosts(self.allowed_host)
        if access or names is None:
            return None
        public = urlsplit(self.public_url).hostname
        return names | {public} if public else names

    history_store: str = Field(
        "", description="URL of object storage that history is brought to; empty for none."
    )
    history_local_bytes_max: int = Field(
        _LOCAL_BYTES_MAX,
        ge=0,
        description="Files of history kept on this machine once object storage has them.",
    )
    history_cache_bytes_max: int = Field(
        _CACHE_BYTES_MAX, ge=0, description="Cache for history that is only in object storage."
    )

    def archive_policy(self) -> ArchivePolicy | None:
        if not self.history_store:
            return None
        return ArchivePolicy(
            self.history_store, self.history_local_bytes_max, self.history_cache_bytes_max
        )

    def document_policy(self) -> DocumentPolicy | None:
        if not self.documents:
            return None
        return DocumentPolicy(
            self.documents_compact_bytes,
            self.documents_retention_s,
            self.documents_workers,
            self.documents_worker_bytes_max,
            self.documents_worker_timeout_ms / 1000,
        )

    def seal_policy(self) -> SealPolicy | None:
        if not self.seal:
            return None
        return SealPolicy(
            self.seal_after_bytes,
            self.seal_after_ms,
            self.database_bytes_max,
            self.segment_bytes,
            self.compact_bytes_per_second,
        )

    def response_policy(self) -> ResponsePolicy | None:
        """What durable responses may be; None if there are none."""
        if not self.proxy_allow.strip():
            return None
        return ResponsePolicy(
            parse_patterns(self.proxy_allow),
            parse_networks(self.proxy_networks),
            self.proxy_head_timeout_ms,
            self.proxy_idle_timeout_ms,
            self.proxy_response_bytes_max,
            self.proxy_requests_max,
            self.proxy_requests_per_caller_max,
            self.proxy_ttl_s,
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
