"""Where streams are kept: the engine, the nodes that share it, and the files of history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from headwater.core.cluster import parse_labels
from headwater.core.limits import MIB, TTL_SECONDS_MAX
from headwater.settings.fields import parsed_by, web_address
from headwater.store.history.policies import ArchivePolicy, SealPolicy

_POSTGRESQL: Final = ("postgresql://", "postgres://")
_SEAL: Final = SealPolicy()
_ARCHIVE: Final = ArchivePolicy("")


class StorageSettings(BaseSettings):
    data: Path = Field(
        Path("data"),
        description="Directory that holds the streams or, with PostgreSQL, a cache of history.",
    )
    memory: bool = Field(False, description="Keep everything in memory; a restart loses it.")
    engine: str = Field(
        "sqlite",
        description="Where streams are stored: sqlite (in the data directory), memory, or the "
        "address of a PostgreSQL database (postgresql://HOST/DATABASE).",
    )
    engine_lease_ms: int = Field(
        3_000,
        ge=300,
        le=600_000,
        description="How long nodes wait before they take over from a node that is gone.",
    )
    linger_ms: int = Field(
        0, ge=0, le=1_000, description="Wait this long for more appends before each commit."
    )
    commit_process: bool = Field(
        True,
        description="Let another process commit to SQLite, if the machine has more than one core.",
    )
    advertise: str = Field(
        "",
        description="Address where other nodes that share the PostgreSQL database reach this one "
        "(http://HOST:PORT); empty if this node has the database to itself.",
    )
    label: Annotated[str, parsed_by(parse_labels)] = Field(
        "",
        description="Labels of this node in a cluster, such as region=eu, separated by commas. "
        "Prefixes bound to a label are served by nodes that have it.",
    )
    seal: bool = Field(True, description="Move older data from the database into history files.")
    seal_after_bytes: int = Field(
        _SEAL.after_bytes,
        ge=1,
        description="Seal a stream with this much data in the database.",
    )
    seal_after_ms: int = Field(
        _SEAL.after_ms,
        ge=0,
        le=1000 * TTL_SECONDS_MAX,
        description="Seal data once it has been in the database this long.",
    )
    database_bytes_max: int = Field(
        _SEAL.database_bytes_max,
        ge=1,
        description="Data of all streams in the database; beyond that, the largest are sealed.",
    )
    segment_bytes: int = Field(
        _SEAL.segment_bytes,
        ge=1024,
        le=1024 * MIB,
        description="Approximate size of a history file.",
    )
    compact_bytes_per_second: int = Field(
        _SEAL.compact_bytes_per_second,
        ge=0,
        description="How fast history files that are small or mostly unused are rewritten; 0 for "
        "never.",
    )
    history_store: str = Field(
        "", description="URL of the object storage that history moves to; empty for none."
    )
    history_local_bytes_max: int = Field(
        _ARCHIVE.local_bytes_max,
        ge=0,
        description="History files kept on this machine once object storage has them.",
    )
    history_cache_bytes_max: int = Field(
        _ARCHIVE.cache_bytes_max,
        ge=0,
        description="Cache for history that is only in object storage.",
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

    def archive_policy(self) -> ArchivePolicy | None:
        if not self.history_store:
            return None
        return ArchivePolicy(
            self.history_store, self.history_local_bytes_max, self.history_cache_bytes_max
        )

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine not in ("sqlite", "memory") and not self.engine.startswith(_POSTGRESQL):
            raise ValueError(
                "engine must be sqlite, memory or the address of a PostgreSQL database "
                "(postgresql://HOST/DATABASE)"
            )
        if self.memory and self.engine_kind != "memory":
            raise ValueError("choose one: memory, or an engine that stores the streams")
        if self.advertise and self.engine_kind != "postgresql":
            raise ValueError(
                "advertise is for nodes that share a PostgreSQL database; set engine to its "
                "address (postgresql://HOST/DATABASE), or leave advertise out"
            )
        if self.label and not self.advertise:
            raise ValueError(
                "label is for nodes of a cluster; set advertise to the address of this one, or "
                "leave label out"
            )
        return self

    @model_validator(mode="after")
    def _check_history(self) -> Self:
        if not self.history_store:
            return self
        if self.engine_kind == "memory":
            raise ValueError("streams in memory have no history; leave history_store out")
        if not self.seal:
            raise ValueError("only sealed data is moved to history_store; set seal")
        return self

    @field_validator("data", mode="before")
    @classmethod
    def _check_data(cls, value: Any) -> Any:
        if value == "":
            raise ValueError("must name a directory; . is the current one")
        return value

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, value: str) -> str:
        address = web_address(value)
        if value and (
            address is None or address.path.strip("/") or address.query or address.username
        ):
            raise ValueError("must be an address such as http://node1.example.com:4437")
        return value.rstrip("/")
