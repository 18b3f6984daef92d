"""Groups and how far behind they are."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Name, Record, doc

GroupNameField = A[str, doc("the group's name")]
LagMessages = A[int, doc("how many messages are not acknowledged yet")]
LagBytes = A[int, doc("the size of everything from the oldest of them to the end")]
LagSeconds = A[float, doc("how long ago the oldest of them was appended, in seconds")]


class GroupRecord(Record):
    """One group of a stream."""

    stream: Name
    name: GroupNameField
    paused: A[bool, doc("whether it is paused")]
    position: A[str, doc("where it continues, as `group seek` takes it")]
    lag_messages: LagMessages
    lag_bytes: LagBytes
    lag_s: LagSeconds
    in_flight: A[int, doc("how many messages members hold")]
    members: A[dict[str, int], doc("by the name of each member, how many messages it holds")]
    durable: A[bool, doc("whether its position is kept across restarts")]
    start: A[str, doc("where it began")]
    max_in_flight: A[int, doc("how many messages members may hold at a time")]
    ack_timeout_s: A[float, doc("how long a member may keep a message, in seconds")]
    max_deliveries: A[int, doc("deliveries after which a message is given up; 0 means never")]
    dead_letter: A[str | None, doc("the stream for messages that are given up")]
    order_by: A[str | None, doc("a JSON pointer to the key that keeps its order")]
    version: A[int, doc("the version of its settings; 0 if it has none")]


class LagRecord(Record):
    """How far one group is behind."""

    stream: Name
    name: GroupNameField
    messages: LagMessages
    bytes: LagBytes
    seconds: LagSeconds


class GroupRemovalRecord(Record):
    """A group that was deleted."""

    stream: Name
    name: GroupNameField
    removed: A[bool, doc("always true")] = True
