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
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from headwater.core.errors import StorageUnavailable, StreamError
from headwater.core.groups import transitions
from headwater.core.groups.state import (
    GroupMutation,
    GroupState,
    Outstanding,
    Phase,
    format_receipt,
)
from headwater.core.groups.transitions import Taken
from headwater.core.limits import Limits
from headwater.core.unique_ids import pointer_steps, resolve
from headwater.service.entries import Entry, Event, View
from headwater.service.messages import MessageReader
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
        figures: GroupFigures,
    ) -> None:
        self.state = state
        self.entry = entry
        self.pending: object | None = None
        self.gone = False
        self.waiters: deque[Waiter] = deque()
        self.members: dict[str, int] = {}
        self.figures = figures
        self._writer = writer
        self._reader = reader
        self._timers = timers
        self._clock = clock
        self._bury = bury
        self._pump: asyncio.Task[None] | None = None
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

    # ── Members ──────────────────────────────────────────────────────────────────────────────

    def seen(self, consumer: str) -> None:
        self.last_seen_ms = self.members[consumer] = self._clock()
        if len(self.members) > _MEMBERS_REMEMBERED_MAX:
            oldest = min(self.members, key=self.members.__getitem__)
            del self.members[oldest]

    def enlist(self, waiter: Waiter) -> None:
        self.seen(waiter.consumer)
        self.waiters.append(waiter)
        self.kick()

    def leave(self, waiter: Waiter) -> None:
        if waiter in self.waiters:
            self.waiters.remove(waiter)

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
        self.gone = True
        while self.waiters:
            self.waiters.popleft().fail(error)

    # ── Storing ──────────────────────────────────────────────────────────────────────────────

    def effects(self, changes: Sequence[GroupMutation]) -> list[Effect]:
        """What to commit; an ephemeral group lives in memory alone."""
        return [(self, change) for change in changes] if self.state.config.durable else []

    def store(self, changes: Sequence[GroupMutation]) -> None:
        """Write behind: nobody waits for this."""
        effects = self.effects(changes)
        if effects:
            with suppress(StreamError):
                self.submit(effects, None).add_done_callback(_ignore)

    def submit(self, effects: Sequence[Effect], reply: R, size: int = 0) -> asyncio.Future[R]:
        """Commit changes of this group, and what belongs to them."""
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
            self._pump.add_done_callback(lambda _: action())

    async def _run(self) -> None:
        try:
            self._again = True
            while self._again and not self.gone:
                self._again = False
                await self._step()
        except StreamError as error:
            self.dismiss(error)
        finally:
            self._pump = None
            self._set_alarm()

    async def _step(self) -> None:
        state, now_ms = self.state, self._clock()
        self.store(transitions.expire(state, now_ms))
        if state.given_up:
            self._bury(self)
        demand = min(sum(waiter.demand for waiter in self.waiters), state.room, _READ_AT_ONCE_MAX)
        if demand <= 0:
            return
        fresh = await self._take(demand - _due(state, now_ms))
        # Everything that was read may have to wait behind others of its key: then look further.
        self._again = bool(fresh)
        deliveries = self._lease()
        refs = [m.ref for _, messages in deliveries for m in messages if m.ref.number not in fresh]
        if refs:
            fresh |= await self._reader.at(self.entry, self.entry.require_view(), refs)
        for waiter, messages in deliveries:
            waiter.give([(m, fresh[m.ref.number]) for m in messages], self.lag)

    async def _take(self, most: int) -> dict[int, bytes]:
        """Read new messages from the stream into the group."""
        if most <= 0 or len(self.state.outstanding) >= _OUTSTANDING_MAX:
            return {}
        cursor = self.state.cursor
        view = self.entry.require_view()
        found, behind = await self._reader.following(self.entry, view, cursor, most)
        if not found or self.state.cursor != cursor or self.gone:
            return {}
        taken = [Taken(ref, self._key(view, message)) for ref, message in found]
        self.store(transitions.admit(self.state, taken, behind, self._clock()))
        return {ref.number: message for ref, message in found}

    def _key(self, view: View, message: bytes) -> str | None:
        pointer = self.state.config.order_by
        if pointer is None or not view.config.is_json:
            return None
        value = resolve(msgspec.json.decode(message), pointer_steps(pointer))
        return msgspec.json.encode(value).decode()

    def _lease(self) -> list[tuple[Waiter, list[Outstanding]]]:
        """Share what is there: everyone in turn, nobody more than an equal part at a time."""
        state, now_ms = self.state, self._clock()
        shared: dict[Waiter, list[Outstanding]] = {}
        changes: list[GroupMutation] = []
        while available := min(_due(state, now_ms), state.room):
            hungry = [w for w in self.waiters if w.demand > len(shared.get(w, ()))]
            if not hungry:
                break
            share = max(1, -(-available // len(hungry)))
            for waiter in hungry:
                have = shared.setdefault(waiter, [])
                most = min(share, waiter.demand - len(have))
                leased, marked = transitions.deliver(
                    state, waiter.consumer, most, now_ms, _random_token
                )
                have += leased
                self._count(leased)
                changes += marked
        self.store(changes)
        # Who was served first waits behind the others next time.
        self.waiters.rotate(-1)
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
        return bool(
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


def _due(state: GroupState, now_ms: int) -> int:
    """Messages that wait and may be delivered now."""
    first = state.first_waiting()
    if first is None or first.until_ms > now_ms:
        return 0
    numbers = {number for until_ms, number in state.waiting if until_ms <= now_ms}
    return sum(_is_due(state.outstanding.get(number), now_ms) for number in numbers)


def _is_due(message: Outstanding | None, now_ms: int) -> bool:
    return message is not None and message.phase is Phase.WAITING and message.until_ms <= now_ms


def _random_token() -> int:
    return random.getrandbits(_TOKEN_BITS)


def _ignore(future: asyncio.Future[None]) -> None:
    future.exception()
