"""What the load generator can be asked to do. A job travels to its process as JSON."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Job:
    """Where the server listens, and which process is charged for the work."""

    port: int
    server_pid: int

    def to_json(self) -> str:
        return json.dumps({"kind": type(self).__name__, **asdict(self)})


@dataclass(frozen=True)
class CreateStreams(Job):
    """Create ``{prefix}0`` … ``{prefix}{streams - 1}``, empty, for JSON messages."""

    prefix: str
    streams: int
    connections: int


@dataclass(frozen=True)
class FillStream(Job):
    """Create a stream and append messages in large batches, as fast as the server takes them."""

    path: str
    messages: int
    message_bytes: int
    batch_messages: int
    record: bool = False
    """Whether a message is a record with several fields, or else one text."""


@dataclass(frozen=True)
class Append(Job):
    """Append single messages from every connection, each waiting for its own answer."""

    prefix: str
    streams: int
    connections: int
    body_bytes: int
    warmup_seconds: float
    seconds: float


@dataclass(frozen=True)
class LiveTraffic(Job):
    """Writers at a fixed pace and SSE readers on the same streams.

    With ``writers_read`` the first readers of a document are its writers, as in an editor; a
    writer's own messages coming back to it are not counted.
    """

    prefix: str
    documents: int
    writers: int
    readers: int
    writers_read: bool
    rate: float
    message_bytes: int
    warmup_seconds: float
    seconds: float
    drain_seconds: float


@dataclass(frozen=True)
class Fanout(Job):
    """Many SSE readers on one stream; every append is followed to the last of them."""

    path: str
    readers: int
    message_bytes: int
    settle_seconds: float
    seconds: float


@dataclass(frozen=True)
class CatchUp(Job):
    """Read a whole stream from the start on each connection, following its offsets."""

    path: str
    connections: int
