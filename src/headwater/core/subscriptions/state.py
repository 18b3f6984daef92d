"""The state of a subscription, and the stored changes to it.

The state has two sources. Mutations are decided here and stored: settings, acknowledged offsets,
the wake. The tails of the linked streams are *observed* from the streams' own mutations after their
commit, and not stored again: they are looked up when the state is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from headwater.core.lineage import Lineage
from headwater.core.offsets import BEGINNING, format_offset
from headwater.core.patterns import Pattern, compiled
from headwater.core.subscriptions.config import SubscriptionConfig

NOTHING_ACKED: Final = -1
_NOWHERE: Final = format_offset(0, 0)


class Phase(IntEnum):
    IDLE = 0
    DUE = 1
    OFFERED = 2
    LEASED = 3


class Wake(msgspec.Struct, frozen=True):
    """The current wake, or what is left of the last one."""

    generation: int = 0
    phase: Phase = Phase.IDLE
    wake_id: str = ""
    until_ms: int = 0
    """Due: when to announce it. Leased: when the lease ends."""
    attempts: int = 0
    """How often announcing it has failed."""
    holder: str | None = None


NO_WAKE: Final = Wake()


class SubscriptionRecord(NamedTuple):
    """The fixed properties of a subscription."""

    id: int
    name: str
    created_at_ms: int
    base_url: str
    """How its creator reaches this server; callbacks go there."""


class Mark(NamedTuple):
    """The stored part of a link."""

    path: str
    explicit: bool
    stream_id: int
    """The stream that `acked` refers to; a younger one of the same name starts over."""
    acked: int


class StreamTail(NamedTuple):
    """An existing stream, and its tail."""

    path: str
    lineage: Lineage
    tail: int


@dataclass(slots=True)
class Link:
    """A stream as the subscription sees it."""

    path: str
    explicit: bool
    lineage: Lineage | None = None
    """The stream at that path; None while there is none."""
    tail: int = 0
    acked: int = NOTHING_ACKED

    @property
    def stream_id(self) -> int:
        return self.lineage.own if self.lineage else 0

    @property
    def pending(self) -> bool:
        return self.tail > max(self.acked, 0)

    def mark(self, acked: int | None = None) -> Mark:
        return Mark(
            self.path, self.explicit, self.stream_id, self.acked if acked is None else acked
        )


class StreamInfo(msgspec.Struct, frozen=True):
    """A linked stream, as a woken worker sees it."""

    path: str
    link_type: str
    acked_offset: str
    tail_offset: str
    has_pending: bool


class Snapshot(NamedTuple):
    """The linked streams at one moment, and the marks that would acknowledge all of them."""

    streams: list[StreamInfo]
    marks: list[Mark]


@dataclass(slots=True)
class SubscriptionState:
    record: SubscriptionRecord
    config: SubscriptionConfig
    wake: Wake = NO_WAKE
    links: dict[str, Link] = field(default_factory=dict)
    pending: dict[str, Link] = field(default_factory=dict)
    """The links with something pending, longest waiting first."""
    deleted: bool = False
    pattern: Pattern | None = None

    def __post_init__(self) -> None:
        if self.config.pattern is not None:
            self.pattern = compiled(self.config.pattern)

    def globs(self, path: str) -> bool:
        """Whether the pattern covers a stream. Its own wake stream never wakes a subscription."""
        return (
            self.pattern is not None
            and path != self.config.wake_stream
            and self.pattern.covers(path)
        )

    # ── Changes of streams ───────────────────────────────────────────────────────────────────

    def restore(self, marks: Iterable[Mark], streams: Iterable[StreamTail]) -> None:
        """Start from the stored marks and the existing streams."""
        known = {mark.path: mark for mark in marks}
        self.links = {m.path: Link(m.path, True) for m in known.values() if m.explicit}
        for stream in streams:
            if stream.path in self.links or self.globs(stream.path):
                mark = known.get(stream.path)
                same = mark is not None and mark.stream_id == stream.lineage.own
                link = self.appeared(stream)
                link.acked = mark.acked if mark is not None and same else NOTHING_ACKED
        self.pending = {link.path: link for link in self.links.values() if link.pending}

    def appeared(self, stream: StreamTail) -> Link:
        """A stream of this subscription now exists."""
        link = self.links.get(stream.path)
        if link is None:
            link = self.links[stream.path] = Link(stream.path, explicit=False)
        link.lineage, link.tail, link.acked = stream.lineage, stream.tail, NOTHING_ACKED
        self.recount(link)
        return link

    def grew(self, link: Link, stream_id: int, tail: int) -> None:
        """May be called late or twice: a stream only grows."""
        if link.stream_id == stream_id:
            link.tail = max(link.tail, tail)
            if link.path not in self.pending and link.pending:
                self.pending[link.path] = link

    def vanished(self, path: str, stream_id: int) -> None:
        """A stream is gone. An explicit link stays, for the next stream of that name."""
        link = self.links.get(path)
        if link is None or link.stream_id != stream_id:
            return
        if link.explicit:
            link.lineage, link.tail, link.acked = None, 0, NOTHING_ACKED
        else:
            del self.links[path]
        self.pending.pop(path, None)

    def recount(self, link: Link) -> None:
        if not link.pending:
            self.pending.pop(link.path, None)
        elif link.path not in self.pending:
            self.pending[link.path] = link

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def first(self, most: int) -> Iterator[Link]:
        """Links, pending ones first."""
        rest = (link for path, link in self.links.items() if path not in self.pending)
        yield from islice(self.pending.values(), most)
        yield from islice(rest, max(0, most - len(self.pending)))

    def snapshot(self, most: int) -> Snapshot:
        links = list(self.first(most))
        marks = [link.mark(acked=link.tail) for link in links if link.pending]
        return Snapshot([stream_info(link) for link in links], marks)


def stream_info(link: Link) -> StreamInfo:
    acked, tail = BEGINNING, _NOWHERE
    if link.lineage is not None:
        tail = link.lineage.token_at(link.tail)
        if link.acked != NOTHING_ACKED:
            acked = link.lineage.token_at(link.acked)
    kind = "explicit" if link.explicit else "glob"
    return StreamInfo(link.path, kind, acked, tail, link.pending)


# ── Stored changes ───────────────────────────────────────────────────────────────────────────


class SubscriptionCreated(msgspec.Struct, frozen=True):
    record: SubscriptionRecord
    config: SubscriptionConfig
    marks: tuple[Mark, ...]

    @property
    def subscription_id(self) -> int:
        return self.record.id


class SubscriptionDeleted(msgspec.Struct, frozen=True):
    subscription_id: int


class WakeChanged(msgspec.Struct, frozen=True):
    subscription_id: int
    wake: Wake


class LinksMarked(msgspec.Struct, frozen=True):
    """The current state of links: new ones, or with another acknowledged offset."""

    subscription_id: int
    marks: tuple[Mark, ...]
    streams: tuple[StreamTail, ...] = ()
    """The tails of newly linked streams. Not stored."""


class LinksRemoved(msgspec.Struct, frozen=True):
    subscription_id: int
    paths: tuple[str, ...]


class SecretStored(msgspec.Struct, frozen=True):
    """A secret of the server: signing keys, and what tokens are made of."""

    kind: str
    value: bytes
    at_ms: int


SubscriptionMutation = (
    SubscriptionCreated
    | SubscriptionDeleted
    | WakeChanged
    | LinksMarked
    | LinksRemoved
    | SecretStored
)


class StoredSubscription(NamedTuple):
    """A subscription as an engine returns it."""

    record: SubscriptionRecord
    config: SubscriptionConfig
    wake: Wake
    marks: list[Mark]


def evolve(state: SubscriptionState, mutation: SubscriptionMutation) -> None:
    """Fold one mutation into the state it belongs to."""
    match mutation:
        case WakeChanged(_, wake):
            state.wake = wake
        case LinksMarked(_, marks, streams):
            ends = {stream.path: stream for stream in streams}
            for mark in marks:
                _mark(state, mark, ends.get(mark.path))
        case LinksRemoved(_, paths):
            for path in paths:
                _unlink(state, path)
        case SubscriptionDeleted():
            state.deleted = True
        case SubscriptionCreated(marks=marks):
            for mark in marks:
                _mark(state, mark, None)
        case SecretStored():
            pass


def _mark(state: SubscriptionState, mark: Mark, stream: StreamTail | None) -> None:
    link = state.links.get(mark.path)
    if link is None:
        if not mark.explicit:
            # Its stream is gone, and with it anything to acknowledge.
            return
        link = state.links[mark.path] = Link(mark.path, explicit=True)
        if stream is not None:
            link.lineage, link.tail = stream.lineage, stream.tail
    link.explicit = mark.explicit
    if link.stream_id == mark.stream_id:
        link.acked = mark.acked
        state.recount(link)


def _unlink(state: SubscriptionState, path: str) -> None:
    link = state.links.get(path)
    if link is not None and link.explicit:
        del state.links[path]
        state.pending.pop(path, None)
