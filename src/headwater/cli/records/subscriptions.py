"""Subscriptions and their streams."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Name, Record, doc


class LinkRecord(Record):
    """A stream of a subscription."""

    name: Name
    explicit: A[bool, doc("whether it was added by name; otherwise the pattern matches it")]
    acked_offset: A[str, doc("the last offset that was acknowledged; -1 if none was")]
    tail_offset: A[str, doc("the offset after its last message")]
    pending: A[bool, doc("whether there are pending messages between the two")]


class SubscriptionRecord(Record):
    """One subscription."""

    name: A[str, doc("its name")]
    type: A[str, doc("`webhook` or `pull-wake`")]
    pattern: A[str | None, doc("which streams it reads")]
    webhook: A[str | None, doc("the address that is called")]
    wake_stream: A[str | None, doc("the stream that gets an event for each wake")]
    lease_s: A[float, doc("how long a worker may go without reporting")]
    description: A[str | None, doc("what it is for")]
    status: A[str, doc("`active`, or `failed` while waking fails and is tried again")]
    state: A[str, doc("`idle`, `due`, `offered` or `leased`")]
    generation: A[int, doc("how many wakes there were")]
    holder: A[str | None, doc("the worker that claimed the wake")]
    failures: A[int, doc("how often waking has failed in a row")]
    streams_total: A[int, doc("how many streams it is linked to")]
    streams_pending: A[int, doc("how many of them have pending messages")]
    streams: A[list[LinkRecord], doc("those streams; empty in a list of subscriptions")]


class SubscriptionRemovalRecord(Record):
    """A subscription that was deleted."""

    name: A[str, doc("its name")]
    removed: A[bool, doc("always true")] = True


class KeySetRecord(Record):
    """The public keys that requests to webhooks are signed with (RFC 7517)."""

    keys: A[list[dict[str, str]], doc("the keys")]


class WakeRecord(Record):
    """A wake that was claimed, and what came of it."""

    name: A[str, doc("the subscription")]
    wake_id: A[str, doc("names the wake")]
    generation: A[int, doc("its number")]
    streams: A[list[LinkRecord], doc("the streams with pending messages")]
    outcome: A[str, doc("`acked` or `released`")]
    exit_code: A[int | None, doc("how the command ended; null without one")]
