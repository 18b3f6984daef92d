"""The jobs for a client. A job is sent to its process as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Client = Literal["headwater", "peer"]
Flavour = Literal["blocking", "async"]
Kind = Literal["read", "follow", "produce"]
Live = Literal["long-poll", "sse"]


@dataclass(frozen=True)
class ClientJob:
    """Read, follow or produce ``messages`` messages of the stream at ``path``."""

    client: Client
    flavour: Flavour
    kind: Kind
    port: int
    server_pid: int
    path: str
    messages: int
    message: str
    """The message to produce, as JSON. A client gets it as an object and encodes it itself."""
    live: Live = "long-poll"
    early_messages: int = 0
    """After how many messages to record the memory; 0 for never."""
    warmup_path: str = "client-warmup"

    @property
    def server_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"{self.server_url}/v1/stream/{path}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ClientJob":
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields)
