"""The job of the process, and its results. Both are sent as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any

Figures = dict[str, dict[str, float]]
"""Measurements by reader name."""

FILES = "files"
HTTP = "http"
TYPED = "typed"
FROM_JSON = "from_json"
TABLE = "table"
TABLE_PARQUET = "table_parquet"
PARQUET = "parquet"
TEXT = "text"
READY = "ready"
LATENCY = "latency"


@dataclass(frozen=True)
class SparkJob:
    """Read ``messages`` messages in every available way, ``rounds`` times each."""

    port: int
    server_pid: int
    directory: str
    messages: int
    message_bytes: int
    batch_messages: int
    rounds: int
    latency_samples: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "SparkJob":
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)
