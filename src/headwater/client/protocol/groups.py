"""What goes over the wire for groups and transactions: requests and answers as values. No IO."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote, urljoin

import msgspec

from headwater.client.errors import StaleReceipt
from headwater.client.protocol.streams import Request, Response, decoded
from headwater.core.content_types import JSON
from headwater.core.payloads import encode_message

OnDuplicate = Literal["abort", "succeed"]
Action = Literal["ack", "nack", "extend", "reject", "seek", "pause", "resume"]

FETCH_WAIT_MAX_S: Final = 60.0
RECEIPTS_MAX: Final = 10_000
"""How many the server takes in one request."""
_JSON_HEADERS: Final = {"Content-Type": JSON}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group, as the server has them.

    Attributes:
        durable: whether the group's place is kept across restarts.
        start: where the group began: `"first"`, `"latest"` or an offset.
        max_in_flight: how many messages may be with members at a time.
        ack_timeout_s: how long a member may keep a message.
        max_deliveries: after so many deliveries a message is given up; 0 means never.
        dead_letter: the stream that takes what is given up.
        order_by: a JSON pointer to the key that keeps its order.
        version: the version of these settings; 0 while nobody has given one.
    """

    durable: bool
    start: str
    max_in_flight: int
    ack_timeout_s: float
    max_deliveries: int
    dead_letter: str | None
    order_by: str | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """What the server says about a group.

    Attributes:
        name: the group's name.
        settings: its settings.
        paused: whether it hands out nothing at present.
        position: where it goes on, as `seek` takes it: an offset, and maybe `/` and how many
            messages after it were handed out already.
        lag: how many messages are not settled yet.
        lag_bytes: how many bytes they are, about.
        in_flight: how many messages are with members.
        members: how many messages each member has.
        oldest_unsettled_age_s: how long ago the oldest unsettled message was appended.
    """

    name: str
    settings: GroupSettings
    paused: bool
    position: str
    lag: int
    lag_bytes: int
    in_flight: int
    members: Mapping[str, int]
    oldest_unsettled_age_s: float


@dataclass(frozen=True, slots=True)
class Published:
    """One publish of a transaction.

    Attributes:
        stream: the stream's path.
        offset: the stream's end after it.
        duplicate: True when the stream knew the message's id, so that nothing was stored.
    """

    stream: str
    offset: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """What a transaction did.

    Attributes:
        acked: how many messages it acknowledged.
        published: its publishes, in order.
    """

    acked: int
    published: tuple[Published, ...]


class DeliveredProducer(msgspec.Struct, frozen=True):
    """The idempotent producer that a message came from.

    Attributes:
        id: its name.
        epoch: its epoch.
        seq: the number of the request that brought the message.
    """

    id: str
    epoch: int
    seq: int


class Delivered(msgspec.Struct, frozen=True):
    """One message as a group hands it out."""

    id: str
    offset: str
    deliveries: int
    receipt: str
    value: msgspec.Raw = msgspec.Raw()
    data: str | None = None
    time: int | None = None
    producer: DeliveredProducer | None = None

    def content(self) -> bytes:
        """The message's bytes; of a JSON message, exactly the text that was appended."""
        return bytes(self.value) if self.data is None else b64decode(self.data)


@dataclass(frozen=True, slots=True)
class Publish:
    """A message to be published by a transaction, as its part of the request."""

    fields: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        stream: str,
        message: Any,
        *,
        id: str | None = None,
        on_duplicate: OnDuplicate | None = None,
        producer: tuple[str, int, int] | None = None,
    ) -> Publish:
        """Bytes as they are, any other value as JSON. What is no JSON is found out here."""
        part: dict[str, Any] = {"stream": stream}
        if on_duplicate is not None:
            part["on_duplicate"] = on_duplicate
        if isinstance(message, bytes | bytearray | memoryview):
            part["data"] = b64encode(message).decode()
        else:
            part["value"] = msgspec.Raw(encode_message(message, JSON))
        if id is not None:
            part["id"] = id
        if producer is not None:
            name, epoch, seq = producer
            part["producer"] = {"id": name, "epoch": epoch, "seq": seq}
        return cls(part)

    @property
    def repeatable(self) -> bool:
        """Whether the server would notice that it has it already."""
        return "producer" in self.fields


@dataclass(slots=True, eq=False)
class Lease:
    """The time that a member has for one delivery, on the member's own clock.

    It is settled when the member has said what shall become of the message, and lost when the
    server says that someone else has it.
    """

    receipt: str
    since: float
    length_s: float | None = None
    settled: bool = False
    lost: bool = False

    def until(self, ack_timeout_s: float) -> float:
        """When the message goes to someone else."""
        return self.since + (ack_timeout_s if self.length_s is None else self.length_s)

    def is_over(self, ack_timeout_s: float, now: float) -> bool:
        """Whether this member has lost the message, as far as it can tell."""
        return self.settled or self.lost or now >= self.until(ack_timeout_s)


# --- Requests ------------------------------------------------------------------------------------


def groups_url(stream_url: str) -> str:
    return f"{stream_url}/_groups"


def group_url(stream_url: str, name: str) -> str:
    """The address of one group.

    >>> group_url("http://localhost:4437/v1/stream/orders", "my workers")
    'http://localhost:4437/v1/stream/orders/_groups/my%20workers'
    """
    if not name:
        raise ValueError("a group needs a name")
    return f"{groups_url(stream_url)}/{quote(name, safe='')}"


def settings_request(url: str, settings: Mapping[str, Any]) -> Request:
    """Create a group or change its settings; None stands for what is not named."""
    given = {name: value for name, value in settings.items() if value is not None}
    timeout_s = given.pop("ack_timeout_s", None)
    if timeout_s is not None:
        given["ack_timeout_ms"] = milliseconds(timeout_s)
    return Request("PUT", url, headers=_JSON_HEADERS, body=msgspec.json.encode(given))


def fetch_request(
    url: str, *, consumer: str, most: int, wait_s: float, ack: Sequence[str] = ()
) -> Request:
    """Ask for messages, and say what is done. All of it may be repeated.

    If the answer is lost, what was in it comes back after its time.
    """
    if not consumer:
        raise ValueError("a consumer needs a name; leave it out for a random one")
    if most < 1:
        raise ValueError("max must be at least 1")
    if not 0 <= wait_s <= FETCH_WAIT_MAX_S:
        raise ValueError(f"wait_s must be between 0 and {FETCH_WAIT_MAX_S:g}")
    body: dict[str, Any] = {"consumer": consumer, "max": most, "wait_ms": milliseconds(wait_s)}
    if ack:
        body["ack"] = ack
    return Request(
        "POST",
        f"{url}/fetch",
        headers=_JSON_HEADERS,
        body=msgspec.json.encode(body),
        patience="long-poll",
    )


def action_request(url: str, action: Action, fields: Mapping[str, Any] | None = None) -> Request:
    """Settle messages, or change what the group does. All of these may be repeated."""
    body = b"" if fields is None else msgspec.json.encode(fields)
    headers = _JSON_HEADERS if body else {}
    return Request("POST", f"{url}/{action}", headers=headers, body=body)


def transaction_request(
    root: str, publishes: Sequence[Publish], ack: Mapping[str, Any] | None
) -> Request:
    """Acknowledge and publish, all or nothing.

    With an acknowledgement it may be repeated, as a receipt is good for one time only, and with a
    producer for every publish.
    """
    body: dict[str, Any] = {"publish": [publish.fields for publish in publishes]}
    if ack is not None:
        body["ack"] = ack
    return Request(
        "POST",
        urljoin(root, "transaction"),
        headers=_JSON_HEADERS,
        body=msgspec.json.encode(body),
        repeatable=ack is not None or all(publish.repeatable for publish in publishes),
    )


def milliseconds(seconds: float) -> int:
    """Seconds as the protocol has them.

    >>> milliseconds(1.5)
    1500
    """
    return round(seconds * 1000)


# --- Answers -------------------------------------------------------------------------------------


class _WireSettings(msgspec.Struct):
    durable: bool
    start: str
    max_in_flight: int
    ack_timeout_ms: int
    max_deliveries: int
    dead_letter: str | None
    order_by: str | None
    version: int = 0


class _WireInfo(msgspec.Struct):
    name: str
    config: _WireSettings
    paused: bool
    position: str
    lag: int
    lag_bytes: int
    in_flight: int
    members: dict[str, int]
    oldest_unacked_age_ms: int

    def public(self) -> GroupInfo:
        settings = msgspec.structs.asdict(self.config)
        ack_timeout_s = settings.pop("ack_timeout_ms") / 1000
        return GroupInfo(
            name=self.name,
            settings=GroupSettings(**settings, ack_timeout_s=ack_timeout_s),
            paused=self.paused,
            position=self.position,
            lag=self.lag,
            lag_bytes=self.lag_bytes,
            in_flight=self.in_flight,
            members=self.members,
            oldest_unsettled_age_s=self.oldest_unacked_age_ms / 1000,
        )


class _WireInfos(msgspec.Struct):
    groups: list[_WireInfo]


class _WireMessages(msgspec.Struct):
    messages: list[Delivered]


class _WireSettled(msgspec.Struct):
    stale: list[str]


class _WirePublished(msgspec.Struct):
    stream: str
    offset: str
    duplicate: bool


class _WireCommitted(msgspec.Struct):
    acked: int
    published: list[_WirePublished]


def group_info(response: Response) -> GroupInfo:
    return decoded(response, _WireInfo).public()


def group_infos(response: Response) -> list[GroupInfo]:
    return [info.public() for info in decoded(response, _WireInfos).groups]


def deliveries(response: Response) -> list[Delivered]:
    """The messages in the answer to a fetch."""
    return decoded(response, _WireMessages).messages


def stale_receipts(response: Response) -> list[str]:
    """Those of the receipts that the server did not take."""
    return decoded(response, _WireSettled).stale


def committed(response: Response) -> Committed:
    """The outcome of a granted transaction."""
    answer = decoded(response, _WireCommitted)
    published = (Published(p.stream, p.offset, p.duplicate) for p in answer.published)
    return Committed(answer.acked, tuple(published))


def stale_receipt(
    response: Response, *, receipts: Sequence[str], of: int, in_doubt: bool
) -> StaleReceipt:
    """`in_doubt`: an attempt before this one may have used the receipts up."""
    which = "the message is" if of == 1 else f"{len(receipts)} of {of} messages are"
    error = StaleReceipt(
        f"{which} no longer with this member: the time was over, or it is settled",
        status=response.status,
        code="stale_receipt",
        headers=response.headers,
        in_doubt=in_doubt,
    )
    error.receipts = tuple(receipts)
    return error
