"""One group in memory: its state, its members, and who waits for messages.

`pump` delivers messages, one run at a time per group. It takes back what was not settled in time,
reads as many messages as there is demand and room for, and only then leases them to waiting
members. Deliveries are stored afterwards: if the process dies before that, the messages are simply
delivered again. Acknowledgements are answered only when they are committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

import structlog

from headwater.core.errors import StorageUnavailable, StreamError, TooBusy
from headwater.core.groups import decisions
from headwater.core.groups.commands import Command, Nack
from headwater.core.groups.decisions import Outcome, Read
from headwater.core.groups.mutations import GroupMutation, MemberReturned, evolve, is_stored
from headwater.core.groups.state import GroupState, Outstanding, format_receipt
from headwater.core.groups.turns import Taker
from headwater.core.limits import MIB
from headwater.core.stream import Appended
from headwater.service.entries import Entry
from headwater.service.groups.figures import WORDS, GroupFigures
from headwater.service.groups.members import Ending, Waiter
from headwater.service.groups.messages import MessageReader
from headwater.service.replies import Reply
from headwater.service.timers import Alarm, Timers
from headwater.service.writer import Effect, Owner, Writer

log = structlog.get_logger()

_TOKEN_BITS: Final = 47
_READ_AT_ONCE_MAX: Final = 1_000
_READ_BYTES_MAX: Final = 16 * MIB
_MEMBERS_REMEMBERED_MAX: Final = 10_000
_BUSY_RETRY_MS: Final = 50
_FAILURE_RETRY_MS: Final = 1_000

R = TypeVar("R")


class Group(Owner):
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
        awaited: dict[Group, None],
    ) -> None:
        self.state = state
        self.entry = entry
        self.waiters: dict[Waiter, None] = {}
        """Waiting members, in order of their turn."""
        self.members: dict[str, int] = {}
        """When each member was last seen."""
        self.figures = figures
        self.appends: dict[int, Appended] = {}
        """Metadata of the appends being delivered, by start position."""
        self._connections: Counter[str] = Counter()
        self._writer = writer
        self._reader = reader
        self._alarm = Alarm(timers, self.kick)
        self._clock = clock
        self._bury = bury
        self._on_void = on_void
        self._awaited = awaited
        """The groups of this stream with waiting members."""
        self._end: StreamError | None = None
        self._pump: asyncio.Task[None] | None = None
        self._after_pump: list[Callable[[], None]] = []
        self._again = False
        self._kept_from = 0
        """The first position the stream kept at the last check."""
        self.last_seen_ms = clock()
        figures.loaded += 1
        self._in_flight = self._outstanding = 0
        self._count()

    # ── For the writer ───────────────────────────────────────────────────────────────────────

    def apply(self, mutation: GroupMutation) -> None:
        evolve(self.state, mutation)
        self._count()

    def forget_state(self) -> None:
        """A commit failed: this copy is void. Waiting members come back and find a fresh one."""
        self.dismiss(StorageUnavailable())
        self._on_void()

    @property
    def gone(self) -> bool:
        """Whether this copy is void: nothing more may be decided on it or stored from it."""
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
        self.store(decisions.decide_return(self.state, waiter.consumer))
        if waiter not in self.waiters:
            self.waiters[waiter] = self._awaited[self] = None
            self.figures.waiting += 1
        self.kick()

    def leave(self, waiter: Waiter) -> None:
        if waiter in self.waiters:
            del self.waiters[waiter]
            self.figures.waiting -= 1
            if not self.waiters:
                self._awaited.pop(self, None)

    def connect(self, waiter: Waiter) -> None:
        """A member opens a connection for pushed messages."""
        self._connections[waiter.consumer] += 1
        self.enlist(waiter)

    def disconnect(self, waiter: Waiter, ending: Ending) -> None:
        """The connection is closed. What happens to the messages depends on who closed it."""
        consumer = waiter.consumer
        self.leave(waiter)
        self._connections[consumer] -= 1
        if self._connections[consumer]:
            return
        del self._connections[consumer]
        if self.gone:
            return
        self.seen(consumer)
        if ending is Ending.MEMBER:
            self.store(decisions.decide_leave(self.state, consumer, self._clock()))
        else:
            cut_off = ending is Ending.CUT_OFF
            self.store(decisions.decide_part(self.state, consumer, cut_off=cut_off))
        self.kick()

    def take_back(self, messages: Sequence[Outstanding]) -> None:
        """These deliveries reached nobody, so they do not count."""
        if self.gone:
            return
        receipts = [format_receipt(self.state.record.id, message) for message in messages]
        command = Nack(receipts, count=False)
        try:
            self.store(decisions.decide(self.state, command, self._clock()).mutations)
        except StreamError:
            # The writer accepts nothing now. The messages come back when their leases end.
            return
        self.kick()

    def dismiss(self, error: StreamError) -> None:
        """This copy is no longer used."""
        if self._end is None:
            self._end = error
            self.figures.loaded -= 1
            self._count()
        self._turn_away(error)

    def _turn_away(self, error: StreamError) -> None:
        waiters, self.waiters = self.waiters, {}
        self._awaited.pop(self, None)
        self.figures.waiting -= len(waiters)
        for waiter in waiters:
            waiter.fail(error)

    # ── Storing ──────────────────────────────────────────────────────────────────────────────

    def settle(self, command: Command) -> Reply[Outcome]:
        """Acknowledge, return, reject or extend; answered when that is committed."""
        decision = decisions.decide(self.state, command, self._clock())
        outcome = decision.reply
        future = self.submit(decision.mutations, outcome)
        self.figures.settled[WORDS[type(command)]] += len(outcome.done)
        for consumer in {message.consumer for message in outcome.done if message.consumer}:
            self.seen(consumer)
        self.kick()
        return future

    def store(self, mutations: Sequence[GroupMutation]) -> None:
        """Apply mutations now and store them later: nobody waits for this."""
        if self.gone:
            return
        durable = self.state.config.durable
        effects: list[Effect] = [(self, each) for each in mutations if durable and is_stored(each)]
        if effects:
            self._writer.defer(effects)
        if len(effects) < len(mutations):
            for mutation in mutations:
                if not durable or not is_stored(mutation):
                    self.apply(mutation)

    def submit(
        self,
        mutations: Sequence[GroupMutation],
        reply: R,
        others: Sequence[Effect] = (),
        size: int = 0,
        *,
        durable: bool | None = None,
    ) -> Reply[R]:
        """Commit mutations of this group, and what belongs to them.

        An ephemeral group is in memory only, so none of it is stored.
        """
        if self._end is not None:
            raise self._end
        if self.state.config.durable if durable is None else durable:
            effects = [*others, *[(self, mutation) for mutation in mutations]]
            if effects:
                return self._writer.submit(effects, reply, size)
            return self._writer.reply_after(self, reply)
        if others:
            future = self._writer.submit(others, reply, size)
        else:
            future = self._writer.reply_after(self, reply)
        for mutation in mutations:
            self.apply(mutation)
        return future

    # ── Handing out ──────────────────────────────────────────────────────────────────────────

    def kick(self) -> None:
        """Something changed: check whether a member can be served."""
        if self.gone:
            return
        if self._pump is not None:
            self._again = True
            return
        self._pump = asyncio.get_running_loop().create_task(self._run())

    def after_pump(self, action: Callable[[], None]) -> None:
        """Run something after everyone who can be served now has been."""
        if self._pump is None:
            action()
        else:
            self._after_pump.append(action)

    async def _run(self) -> None:
        retry_ms = 0
        try:
            self._again = True
            while self._again and not self.gone:
                self._again = False
                await self._step()
        except TooBusy:
            # Nothing was decided without being stored, and the members can wait a little longer.
            retry_ms = _BUSY_RETRY_MS
        except StreamError as error:
            # Nothing could be read. The state itself is still valid.
            self._turn_away(error)
            retry_ms = _FAILURE_RETRY_MS
        except Exception as error:
            # Nobody waits for this task. The failure must be visible, and must not end the group.
            self.figures.watch.failed(error, _FAILURE_RETRY_MS / 1000)
            self._turn_away(StorageUnavailable("the group could not be served; try again"))
            retry_ms = _FAILURE_RETRY_MS
        finally:
            self._pump = None
            self._set_alarm(retry_ms)
            actions, self._after_pump = self._after_pump, []
            for action in actions:
                action()

    async def _step(self) -> None:
        self._settle_cleared()
        self._expire()
        if self.state.given_up:
            self._bury(self)
        most, most_bytes = self._demand()
        if most <= 0:
            return
        state, now_ms = self.state, self._clock()
        self.appends = {}
        read, bodies = await self._reader.to_hand_out(
            self.entry, state, now_ms, most, most_bytes, self.appends
        )
        if bodies and not self.gone:
            # The messages read may be blocked on their keys: then read further.
            self._again = True
            self._hand_out(read, bodies)

    def _settle_cleared(self) -> None:
        """Settle messages that were delivered and then cleared from the stream."""
        view = self.entry.view
        if view is None or view.config.kept_from == self._kept_from:
            return
        self._kept_from = first = view.config.kept_from
        cleared = [m for m in self.state.outstanding.values() if m.ref.start < first]
        if cleared:
            self.store(decisions.decide_settle(self.state, cleared))

    def _expire(self) -> None:
        expired = decisions.decide_expire(self.state, self._clock())
        self.store(expired)
        for mutation in expired:
            if isinstance(mutation, MemberReturned):
                self.members.pop(mutation.consumer, None)

    def _demand(self) -> tuple[int, int]:
        """How many messages are wanted, and at most how many bytes of them."""
        most = min(self.state.room, _READ_AT_ONCE_MAX)
        demand = demand_bytes = 0
        for waiter in self.waiters if most else ():
            wanted = waiter.demand
            if wanted > 0:
                demand += wanted
                demand_bytes += waiter.most_bytes
                if demand >= most and demand_bytes >= _READ_BYTES_MAX:
                    break
        return min(demand, most), min(demand_bytes, _READ_BYTES_MAX)

    def _hand_out(self, read: Read, bodies: dict[int, bytes]) -> None:
        hungry = (waiter for waiter in self.waiters if waiter.demand > 0)
        # Members beyond that number get none of these.
        waiters = list(islice(hungry, len(bodies)))
        takers = [Taker(w.consumer, w.demand, w.most_bytes) for w in waiters]
        token = random.getrandbits(_TOKEN_BITS)
        decision = decisions.decide_hand_out(self.state, takers, read, self._clock(), token)
        self.store(decision.mutations)
        shares = decision.reply.shares
        for index in decision.reply.turns:
            if shares[index]:
                del self.waiters[waiters[index]]
                self.waiters[waiters[index]] = None
        for waiter, messages in zip(waiters, shares, strict=True):
            if messages:
                self.figures.deliveries += len(messages)
                self.figures.redeliveries += sum([m.deliveries > 1 for m in messages])
                waiter.give([(m, bodies[m.ref.number]) for m in messages], self.lag)
        self.appends = {}

    # ── Time ─────────────────────────────────────────────────────────────────────────────────

    def _set_alarm(self, retry_ms: int) -> None:
        """Wake up when a lease, grace period or delay ends, or to retry."""
        if self.gone:
            return
        now_ms = self._clock()
        due_ms = now_ms + retry_ms if retry_ms else self.state.next_moment_ms(now_ms)
        if due_ms is not None:
            self._alarm.set(due_ms)

    # ── Figures ──────────────────────────────────────────────────────────────────────────────

    def _count(self) -> None:
        """Update the metrics with this group's share; a void copy has none."""
        state, figures = self.state, self.figures
        in_flight = 0 if self.gone else state.in_flight
        outstanding = 0 if self.gone else len(state.outstanding)
        figures.in_flight += in_flight - self._in_flight
        figures.outstanding += outstanding - self._outstanding
        self._in_flight, self._outstanding = in_flight, outstanding

    @property
    def lag(self) -> int:
        """Unsettled messages: not delivered yet, or delivered and not done."""
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
