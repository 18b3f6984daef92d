"""The jobs for the load generator. A job is sent to its process as JSON."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Job:
    """Where the server listens, and which process's resources are measured."""

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
    """Create a stream and append messages in large batches, as fast as the server accepts them."""

    path: str
    messages: int
    message_bytes: int
    batch_messages: int
    record: bool = False
    """Whether a message is a record with several fields, or just one text."""
    connections: int = 2


@dataclass(frozen=True)
class Append(Job):
    """Append from every connection, each waiting for its own answer."""

    prefix: str
    streams: int
    connections: int
    message_bytes: int
    warmup_seconds: float
    seconds: float
    messages: int = 1
    """In each request."""
    more_ports: tuple[int, ...] = ()
    """Further ports to connect to, in turn."""


@dataclass(frozen=True)
class LiveTraffic(Job):
    """Writers at a fixed pace and SSE readers on the same streams.

    With ``writers_read`` the first readers of a document are its writers, as in an editor; a
    writer's own messages are not counted when they come back to it.
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
    yjs: bool = False
    """Whether they are documents with updates, or streams with JSON messages."""


@dataclass(frozen=True)
class Fanout(Job):
    """Many SSE readers on one stream; every append is followed to the last of them."""

    path: str
    readers: int
    message_bytes: int
    settle_seconds: float
    seconds: float
    more_ports: tuple[int, ...] = ()
    """Further ports to read from, in turn."""


@dataclass(frozen=True)
class Replay(Job):
    """Read the same stream, or file, over and over from its start on each connection."""

    path: str
    readers: int
    seconds: float
    """At least; continues until every reader has read all of it once."""
    range_bytes: int = 0
    """For a static file: the size of the requested ranges."""


@dataclass(frozen=True)
class FirstByte(Job):
    """Read from random places of two streams in turn, each of equal appends."""

    long_path: str
    long_appends: int
    short_path: str
    short_appends: int
    samples: int


@dataclass(frozen=True)
class CatchUp(Job):
    """Read a whole stream from the start on each connection, following its offsets."""

    path: str
    connections: int


@dataclass(frozen=True)
class FillBroker(Job):
    """Create a stream in any of the systems that distribute work, and fill it."""

    broker: str
    stream: str
    messages: int
    message_bytes: int
    batch_messages: int


@dataclass(frozen=True)
class Work(Job):
    """Members of groups fetch and acknowledge existing messages, as fast as they get them.

    With several groups each member goes from one to the next. With ``target`` a member appends a
    message there for each one it fetched, and acknowledges in the same transaction. ``combined``
    members acknowledge what they have with their next fetch.
    """

    broker: str
    stream: str
    group_prefix: str
    groups: int
    consumers: int
    fetch: int
    messages_max: int
    """Stop here even if time is left: the stream must not run dry."""
    message_bytes: int
    warmup_seconds: float
    seconds: float
    target: str = ""
    combined: bool = False


@dataclass(frozen=True)
class PacedWork(Job):
    """Writers at a fixed pace, and one group whose members wait for each message."""

    broker: str
    stream: str
    writers: int
    consumers: int
    rate: float
    """Messages per second, of all writers together."""
    message_bytes: int
    warmup_seconds: float
    seconds: float
    drain_seconds: float


@dataclass(frozen=True)
class PacedChanges(Job):
    """Live streams, each with a waiting query and a writer whose changes concern it."""

    prefix: str
    streams: int
    rate: float
    """Changes per second, of each stream."""
    warmup_seconds: float
    seconds: float
    drain_seconds: float


@dataclass(frozen=True)
class ChangeFlood(Job):
    """Changes to one live stream as fast as it accepts them, until all of them are evaluated."""

    path: str
    tables: int
    templates: int
    """With one field each, for every table."""
    waiters: int
    connections: int
    batch_changes: int
    seconds: float
    settle_seconds: float


@dataclass(frozen=True)
class ManyWaiters(Job):
    """Many queries waiting on one stream, while each change concerns a few of them."""

    path: str
    waiters: int
    touched: int
    """How many queries each append concerns."""
    rate: float
    settle_seconds: float
    seconds: float
    drain_seconds: float
