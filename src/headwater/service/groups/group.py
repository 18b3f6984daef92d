"""One group in memory: its state, its members, and who waits for messages.

Messages are handed out by `pump`, one run at a time per group. It takes back what was not settled
in time, reads as many messages from the stream as there is demand and room for, and shares them
among those who wait. Deliveries are stored behind the hand-out: if the process dies before, the
messages are simply handed out again. Acknowledgements are answered only when they are committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from headwater.core.errors import StorageUnavailable, StreamError
from headwater.core.groups import transitions
from headwater.core.groups.state import (
    WAITING,
    GroupMutation,
    GroupState,
    MessageRef,
    Outstanding,
    format_receipt,
)
from headwater.core.groups.transitions import Taken
from headwater.core.limits import Limits
from headwater.core.unique_ids import pointer_steps, resolve
from headwater.service.entries import Entry, Event, View
from headwater.service.groups.messages import MessageReader
from headwater.service.timers import Timers
from headwater.service.writer import Effect, Writer

log = structlog.get_logger()

_TOKEN_BITS: Final = 47
_READ_AT_ONCE_MAX: Final = 1_000
_OUTSTANDING_MAX: Final = 100_000
_MEMBERS_REMEMBERED_MAX: Final = 10_000

R = TypeVar("R")
Delivery = tuple[Outstanding, bytes]


class Waiter(Protocol):
    """Someone who takes messages."""

    consumer: str

    @property
    def demand(self) -> int: ...

    def give(self, deliveries: list[Delivery], lag: int) -> None: ...

    def fail(self, error: StreamError) -> None: ...


class _Taken(NamedTuple):
    """Messages read from the stream."""

    bodies: dict[int, bytes]
    fresh: deque[MessageRef]
    """Those that may be leased at once, which have not become part of the group yet."""
    changes: list[GroupMutation]
    """What has to be stored together with what becomes of them."""


class GroupFigures:
    """What all groups have done since the start, for those who watch them."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.redeliveries = 0
        self.dead_letters = 0
        self.settled = {"acked": 0, "nacked": 0, "rejected": 0, "extended": 0}


class Group:
    def __init__(
        self,
        state: GroupState,
        entry: Entry,
        writer: Writer,
        reader: MessageReader,
        timers: Timers,
        clock: Callable[[], int],
        bury: Callable[[Group], None],
        on_void: Callable[[], None],
        figures: GroupFigures,
    ) -> None:
        self.state = state
        self.entry = entry
        self.pending: object | None = None
        self.waiters: dict[Waiter, None] = {}
        """Who waits, in the order of their turn."""
        self.members: dict[str, int] = {}
        self.figures = figures
        self._writer = writer
        self._reader = reader
        self._timers = timers
        self._clock = clock
        self._bury = bury
        self._on_void = on_void
        self._end: StreamError | None = None
        self._pump: asyncio.Task[None] | None = None
        self._after_pump: list[Callable[[], None]] = []
        self._again = False
        self._alarm_ms: int | None = None
        self.last_seen_ms = clock()

    # ── What the writer asks of an owner ─────────────────────────────────────────────────────

    def apply(self, mutation: GroupMutation) -> None:
        """Transitions have changed the state already."""

    def publish(self, mutation: GroupMutation, limits: Limits) -> Event | None:
        return None

    def notify(self, event: Event) -> None:
        pass

    def forget_state(self) -> None:
        """A commit failed: this copy is void. Whoever waits comes back and finds a fresh one."""
        self.dismiss(StorageUnavailable())
        self._on_void()

    @property
    def gone(self) -> bool:
        """Whether this copy is void: nothing may be decided on it or stored of it any more."""
        return self._end is not None

    # ── Members ──────────────────────────────────────────────────────────────────────────────

    def seen(self, consumer: str) -> None:
        self.last_seen_ms = self.members[consumer] = self._clock()
        if len(self.members) > _MEMBERS_REMEMBERED_MAX:
            oldest = min(self.members, key=self.members.__getitem__)
            del self.members[oldest]

    def enlist(self, waiter: Waiter) -> None:
        if self._end is not None:
            waiter.fail(self._end)
            return
        self.seen(waiter.consumer)
        self.waiters[waiter] = None
        self.kick()

    def leave(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter, None)

    def release(self, consumer: str) -> None:
        """A member is gone; what it held goes to others at once."""
        self.store(transitions.release(self.state, consumer, self._clock()))
        self.members.pop(consumer, None)
        self.kick()

    def take_back(self, messages: Sequence[Outstanding]) -> None:
        """Deliveries that reached nobody: they do not count."""
        receipts = [format_receipt(self.state.record.id, message) for message in messages]
        outcome = transitions.nack(self.state, receipts, 0, self._clock(), count=False)
        self.store(outcome.changes)
        self.kick()

    def dismiss(self, error: StreamError) -> None:
        """This copy is of no use any more."""
        self._end = self._end or error
        self._turn_away(error)

    def _turn_away(self, error: StreamError) -> None:
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.fail(error)

    # ── Storing ──────────────────────────────────────────────────────────────────────────────

    def effects(self, changes: Sequence[GroupMutation]) -> list[Effect]:
        """What to commit; an ephemeral group lives in memory alone."""
        return [(self, change) for change in changes] if self.state.config.durable else []

    def store(self, changes: Sequence[GroupMutation]) -> None:
        """Write behind: nobody waits for this."""
        effects = self.effects(changes)
        # A copy that is void has nothing more to say.
        if effects and not self.gone:
            try:
                self._writer.defer(effects)
            except StreamError:
                self.forget_state()

    def submit(self, effects: Sequence[Effect], reply: R, size: int = 0) -> asyncio.Future[R]:
        """Commit changes of this group, and what belongs to them."""
        if self._end is not None:
            raise self._end
        try:
            return self._writer.submit(effects, reply, size)
        except StreamError:
            # The state has moved already. What is not stored must not count, so it is dropped.
            self.forget_state()
            raise

    # ── Handing out ──────────────────────────────────────────────────────────────────────────

    def kick(self) -> None:
        """Something changed: see whether someone can be served."""
        if self.gone:
            return
        if self._pump is not None:
            self._again = True
            return
        self._pump = asyncio.get_running_loop().create_task(self._run())

    def after_pump(self, action: Callable[[], None]) -> None:
        """Do something when whoever can be served now has been."""
        if self._pump is None:
            action()
        else:
            self._after_pump.append(action)

    async def _run(self) -> None:
        try:
            self._again = True
            while self._again and not self.gone:
                self._again = False
                await self._step()
        except StreamError as error:
            # Nothing could be read. That says nothing against the state.
            self._turn_away(error)
        finally:
            self._pump = None
            self._set_alarm()
            actions, self._after_pump = self._after_pump, []
            for action in actions:
                action()

    async def _step(self) -> None:
        state, now_ms = self.state, self._clock()
        self.store(transitions.expire(state, now_ms))
        if state.given_up:
            self._bury(self)
        demand = min(sum(waiter.demand for waiter in self.waiters), state.room, _READ_AT_ONCE_MAX)
        if demand <= 0:
            return
        taken = await self._take(demand - _due(state, now_ms, demand))
        # Everything that was read may have to wait behind others of its key: then look further.
        self._again = self._again or bool(taken.bodies)
        deliveries = self._lease(taken)
        bodies = taken.bodies
        leased = [message for _, messages in deliveries for message in messages]
        try:
            bodies |= await self._read_again([m for m in leased if m.ref.number not in bodies])
        except StreamError:
            self.take_back(leased)
            raise
        for waiter, messages in deliveries:
            waiter.give([(m, bodies[m.ref.number]) for m in messages], self.lag)

    async def _read_again(self, messages: Sequence[Outstanding]) -> dict[int, bytes]:
        """Messages that were taken from the stream some time ago."""
        if not messages:
            return {}
        refs = [message.ref for message in messages]
        return await self._reader.at(self.entry, self.entry.require_view(), refs)

    async def _take(self, most: int) -> _Taken:
        """Read new messages from the stream into the group."""
        nothing = _Taken({}, deque(), [])
        if most <= 0 or len(self.state.outstanding) >= _OUTSTANDING_MAX:
            return nothing
        cursor = self.state.cursor
        view = self.entry.require_view()
        found, behind = await self._reader.following(self.entry, view, cursor, most)
        if not found or self.state.cursor != cursor or self.gone:
            return nothing
        bodies = {ref.number: message for ref, message in found}
        if self.state.config.order_by is None:
            refs = deque([ref for ref, _ in found])
            return _Taken(bodies, refs, transitions.admit(self.state, (), behind, self._clock()))
        keyed = [Taken(ref, self._key(view, message)) for ref, message in found]
        return _Taken(bodies, deque(), transitions.admit(self.state, keyed, behind, self._clock()))

    def _key(self, view: View, message: bytes) -> str | None:
        pointer = self.state.config.order_by
        if pointer is None or not view.config.is_json:
            return None
        value = resolve(msgspec.json.decode(message), pointer_steps(pointer))
        return msgspec.json.encode(value).decode()

    def _lease(self, taken: _Taken) -> list[tuple[Waiter, list[Outstanding]]]:
        """Share what is there: everyone in turn, nobody more than an equal part at a time."""
        state, now_ms, fresh = self.state, self._clock(), taken.fresh
        shared: dict[Waiter, list[Outstanding]] = {}
        changes = taken.changes
        while hungry := [w for w in self.waiters if w.demand > len(shared.get(w, ()))]:
            most = min(state.room, _READ_AT_ONCE_MAX)
            available = min(most, _due(state, now_ms, most) + len(fresh))
            if available == 0:
                break
            share = max(1, available // len(hungry))
            for waiter in hungry:
                have = shared.setdefault(waiter, [])
                most = min(share, waiter.demand - len(have))
                leased, marked = transitions.deliver(
                    state, waiter.consumer, most, now_ms, _random_token(), fresh
                )
                have += leased
                self._count(leased)
                changes += marked
        if fresh:
            # Whom they were read for has left meanwhile.
            waiting = [Taken(ref) for ref in fresh]
            changes += transitions.admit(state, waiting, state.cursor, now_ms)
        # In one go: where the cursor is past, the messages before it must be known.
        self.store(changes)
        # Who was served first waits behind the others next time.
        first = next(iter(self.waiters), None)
        if first is not None:
            del self.waiters[first]
            self.waiters[first] = None
        return [(waiter, messages) for waiter, messages in shared.items() if messages]

    def _count(self, leased: Sequence[Outstanding]) -> None:
        self.figures.deliveries += len(leased)
        self.figures.redeliveries += sum(message.deliveries > 1 for message in leased)

    # ── Time ─────────────────────────────────────────────────────────────────────────────────

    def _set_alarm(self) -> None:
        """Wake up when a lease ends or a delay is over."""
        if self.gone:
            return
        lease, waiting = self.state.first_lease(), self.state.first_waiting()
        moments = [lease.until_ms] if lease else []
        if waiting and waiting.until_ms > self._clock():
            moments.append(waiting.until_ms)
        if not moments:
            return
        due_ms = min(moments)
        if self._alarm_ms is None or due_ms < self._alarm_ms:
            self._alarm_ms = due_ms
            self._timers.at(due_ms, self._alarm)

    def _alarm(self) -> None:
        self._alarm_ms = None
        self.kick()

    # ── Figures ──────────────────────────────────────────────────────────────────────────────

    @property
    def lag(self) -> int:
        """Messages that are not settled: not handed out yet, or handed out and not done."""
        view = self.entry.view
        undelivered = view.messages - self.state.cursor.number if view else 0
        return undelivered + len(self.state.outstanding)

    @property
    def busy(self) -> bool:
        """Whether this copy has to stay in memory."""
        state = self.state
        return not self.gone and bool(
            self.waiters
            or self.pending
            or self._pump
            or state.in_flight
            or state.given_up
            or not state.config.durable
        )

    def oldest(self) -> Outstanding | None:
        outstanding = self.state.outstanding
        return outstanding[min(outstanding)] if outstanding else None


def _due(state: GroupState, now_ms: int, most: int) -> int:
    """Messages that wait and may be delivered now; there may be many, so only up to so many."""
    first = state.first_waiting()
    if first is None or first.until_ms > now_ms:
        return 0
    due: set[int] = set()
    for until_ms, number in state.waiting:
        if len(due) >= most:
            break
        message = state.outstanding.get(number) if until_ms <= now_ms else None
        # What is in the heap may be out of date.
        if message is not None and message.phase is WAITING and message.until_ms == until_ms:
            due.add(number)
    return len(due)


def _random_token() -> int:
    return random.getrandbits(_TOKEN_BITS)
