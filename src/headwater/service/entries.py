"""Streams in memory.

An entry is what the process holds of one path while it is in use. It has two sides that must not be
confused:

- `state` is what the next decision builds on. It is ahead of the disk by whatever is queued.
- `view` is what readers may see: the committed stream and nothing else.

Entries are loaded on demand and dropped when idle, so memory depends on the streams in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from enum import Enum
from itertools import islice
from typing import NamedTuple

from headwater.core.errors import StreamError, StreamGone, StreamNotFound
from headwater.core.limits import Limits
from headwater.core.stream import (
    STAMPED,
    Appended,
    Closed,
    Created,
    Deleted,
    Mutation,
    ProducersForgotten,
    Purged,
    Reconfigured,
    SoftDeleted,
    StreamConfig,
    StreamState,
    Trimmed,
    Undeleted,
    evolve,
)
from headwater.service.hot_tail import HeldBytes, HotTail
from headwater.store.engine.streams import LoadedStream


class Event(Enum):
    """What listeners are notified of. `CHANGED` means: look at the view again."""

    CHANGED = "changed"
    DELETED = "deleted"
    RELEASED = "released"
    """Another node owns it from now on. Its followers reconnect, and are sent there."""


Listener = Callable[[Event], None]


class Listeners(dict[Listener, None]):
    """Listeners for changes, in the order in which they were added."""

    __slots__ = ()

    def add(self, listener: Listener) -> None:
        self[listener] = None

    def discard(self, listener: Listener) -> None:
        self.pop(listener, None)


class Committed(NamedTuple):
    """How far a stream was at one moment: its view may move while a caller waits."""

    tail: int
    messages: int
    closed: bool


class View:
    """The committed side of a stream."""

    __slots__ = ("closed", "config", "hot", "messages", "soft_deleted", "tail")

    def __init__(self, state: StreamState, held: HeldBytes) -> None:
        self.config: StreamConfig = state.config
        self.tail = state.tail
        self.messages = state.messages
        self.closed = state.closed
        self.soft_deleted = state.soft_deleted
        self.hot = HotTail(state.tail, held)

    @property
    def now(self) -> Committed:
        return Committed(self.tail, self.messages, self.closed)


class Pinned:
    """Keeps an entry in memory while its user waits for another look-up."""

    __slots__ = ("pins",)

    def __init__(self) -> None:
        self.pins = 0

    @contextmanager
    def pinned(self) -> Iterator[None]:
        self.pins += 1
        try:
            yield
        finally:
            self.pins -= 1


class Entry(Pinned):
    __slots__ = (
        "__weakref__",
        "_held",
        "_id_lock",
        "_loading",
        "fresh_ids",
        "in_flight",
        "listeners",
        "loaded",
        "path",
        "pending",
        "producers_complete",
        "released",
        "shard",
        "state",
        "view",
        "waiting",
        "watch",
    )

    def __init__(self, path: str, held: HeldBytes) -> None:
        super().__init__()
        self.path = path
        self._held = held
        self.state: StreamState | None = None
        self.view: View | None = None
        self.loaded = False
        self.producers_complete = True
        self.shard = 0
        # Whether another node owns it from now on: nothing more may be decided on it.
        self.released = False
        # Producers with uncommitted changes, and how many changes each has. The engine's record of
        # these producers is out of date.
        self.in_flight: dict[str, int] = {}
        self.listeners = Listeners()
        # The last batch with a change of this stream, until it is committed.
        self.pending: object | None = None
        # Requests that overtook earlier ones of their producer; see `headwater.service.reordering`.
        self.waiting = 0
        # Streams with unique ids: only one append at a time looks up ids, and the ids of
        # uncommitted appends are known only here.
        self.fresh_ids: set[str] = set()
        self._id_lock: asyncio.Lock | None = None
        # The subscriptions that this stream belongs to; see `headwater.service.subscriptions`.
        self.watch: object | None = None
        self._loading: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        return (
            not self.listeners
            and self.pending is None
            and not self.waiting
            and not self.pins
            and self._loading is None
        )

    @property
    def loading(self) -> bool:
        return self._loading is not None

    @property
    def absent(self) -> bool:
        """Whether there is no stream here, and nobody relies on the entry."""
        return (self.state is None or self.state.deleted) and self.idle

    @asynccontextmanager
    async def lock_ids(self) -> AsyncIterator[None]:
        """Hold the lock while ids are looked up and the append is decided.

        The entry stays while anyone waits for the lock: a second entry would have a second lock.
        """
        if self._id_lock is None:
            self._id_lock = asyncio.Lock()
        with self.pinned():
            async with self._id_lock:
                yield

    def require_view(self) -> View:
        """The committed stream, if it is visible to everyone."""
        view = self.view
        if view is None or view.soft_deleted:
            raise self.missing()
        return view

    def missing(self) -> StreamError:
        """Why no stream is visible here: deleted while forks still read it, or never there."""
        gone = self.view is not None and self.view.soft_deleted
        return StreamGone(self.path) if gone else StreamNotFound(self.path)

    def shown(self, stream_id: int) -> View | None:
        """The committed stream, if it is visible to everyone and still has that id."""
        view = self.view
        if view is None or view.soft_deleted or view.config.id != stream_id:
            return None
        return view

    def shows(self, view: View | None) -> bool:
        """Whether a view is the current one, of the stream that decisions are now made on."""
        state = self.state if self.state is not None and not self.state.deleted else None
        config = state.config if state is not None else None
        return self.view is view and (view.config if view is not None else None) is config

    def install(self, loaded: LoadedStream | None) -> None:
        """Start from what the engine holds. Existing readers are notified of changes."""
        before = self.view
        self.loaded = True
        self.state = state = loaded.state if loaded else None
        if state is not None and before is not None and state.config == before.config:
            # Readers identify the stream by this object, and it is the same stream as before.
            state.config = before.config
        self.producers_complete = loaded.producers_complete if loaded else True
        self.shard = loaded.shard if loaded else 0
        self.view = View(state, self._held) if state else None
        if before is None or not self.listeners:
            return
        if (
            state is None
            or state.config.id != before.config.id
            or (state.soft_deleted and not before.soft_deleted)
        ):
            self.notify(Event.DELETED)
        elif (state.tail, state.closed) != (before.tail, before.closed):
            self.notify(Event.CHANGED)

    def forget_state(self) -> None:
        """A commit failed: drop everything decided since; the engine has the truth."""
        self.loaded = False
        self.state = None
        self.fresh_ids.clear()
        self.in_flight.clear()

    async def load(self, fetch: Callable[[str], Awaitable[LoadedStream | None]]) -> None:
        """Load from the engine; concurrent callers wait for the same answer."""
        while not self.loaded:
            if self._loading is not None:
                await asyncio.shield(self._loading)
                continue
            self._loading = asyncio.get_running_loop().create_future()
            try:
                self.install(await fetch(self.path))
            finally:
                self._loading.set_result(None)
                self._loading = None

    def apply(self, mutation: Mutation) -> None:
        """Let the state run ahead of the disk."""
        if isinstance(mutation, Appended) and self.state is not None:
            if mutation.producer is not None:
                self._note_in_flight(mutation.producer.id)
            evolve(self.state, mutation)
            if mutation.ids:
                self.fresh_ids.update(message_id for message_id, _ in mutation.ids)
            return
        if isinstance(mutation, Created):
            self.state = StreamState.created(mutation.config)
            self.producers_complete = True
            # Uncommitted appends to the previous stream at this path do not concern this one.
            self.fresh_ids.clear()
            self.in_flight.clear()
            return
        if isinstance(mutation, Undeleted):
            self.state = mutation.state.undeleted(mutation.at_ms)
            # Unknown producers are looked up.
            self.producers_complete = False
            self.fresh_ids.clear()
            self.in_flight.clear()
            return
        if isinstance(mutation, Purged):
            return
        assert self.state is not None
        if isinstance(mutation, ProducersForgotten):
            self.renew_state()
        for producer_id in producers_of(mutation):
            self._note_in_flight(producer_id)
        evolve(self.state, mutation)

    def _note_in_flight(self, producer_id: str) -> None:
        self.in_flight[producer_id] = self.in_flight.get(producer_id, 0) + 1

    def publish(self, mutation: Mutation, limits: Limits) -> Event | None:
        """Show readers a mutation that is now committed."""
        if isinstance(mutation, Appended):
            if mutation.producer is not None:
                stored = (mutation.producer.id,)
                self._producers_stored(mutation, stored, limits.producers_preloaded_max)
            view, body = self.view, mutation.body
            assert view is not None
            view.tail = mutation.start + len(body)
            view.messages = mutation.first_message + mutation.messages
            view.hot.push(body, limits.hot_bytes_per_stream_max, mutation)
            if mutation.ids and self.state and self.state.config.id == mutation.stream_id:
                self.fresh_ids.difference_update(message_id for message_id, _ in mutation.ids)
            return Event.CHANGED
        if changed := producers_of(mutation):
            self._producers_stored(mutation, changed, limits.producers_preloaded_max)
        match mutation:
            case Closed():
                assert self.view is not None
                self.view.closed = True
                return Event.CHANGED
            case Created(config):
                self.view = View(StreamState.created(config), self._held)
            case Undeleted(state=state):
                self.view = View(state, self._held)
            case Deleted():
                self.view = None
                return Event.DELETED
            case Reconfigured(config=config) | Trimmed(config=config):
                assert self.view is not None
                self.view.config = config
            case SoftDeleted():
                assert self.view is not None
                self.view.soft_deleted = True
                return Event.DELETED
            case _:
                pass
        return None

    def _producers_stored(self, mutation: Mutation, changed: Sequence[str], most: int) -> None:
        """The engine has these changes now, so some of the producers can be dropped from memory."""
        state, in_flight = self.state, self.in_flight
        if state is None or isinstance(mutation, Created) or state.config.id != mutation.stream_id:
            return
        if isinstance(mutation, ProducersForgotten):
            self.renew_state()
        for producer_id in changed:
            left = in_flight.get(producer_id, 0) - 1
            if left > 0:
                in_flight[producer_id] = left
            else:
                in_flight.pop(producer_id, None)
        # Not one at a time: active producers that were dropped are looked up when they next write.
        if len(state.producers) > 2 * most + len(in_flight):
            recent = islice(reversed([*state.producers.items()]), most)
            kept = dict(recent) | {i: state.producers[i] for i in in_flight if i in state.producers}
            self.renew_state().producers = kept
            self.producers_complete = False

    def renew_state(self) -> StreamState:
        """Replace the state object, so that pending producer look-ups notice and start over."""
        assert self.state is not None
        self.state = copy(self.state)
        return self.state

    def notify(self, event: Event) -> None:
        """Notify all listeners, even if one fails."""
        failure: Exception | None = None
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


def producers_of(mutation: Mutation) -> Sequence[str]:
    """The producers that a mutation changes."""
    if isinstance(mutation, STAMPED):
        return () if mutation.producer is None else (mutation.producer.id,)
    return mutation.ids if isinstance(mutation, ProducersForgotten) else ()
