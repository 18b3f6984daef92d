"""One group in memory: its state, its members, and who waits for messages.

A group takes a turn after whatever one turn of the loop brings. First, all acknowledgements that
came are decided and stored together. Then messages are delivered: the group takes back what was not
settled in time, reads as many messages as there is demand and room for, and only then leases them
to waiting members. If something has to be read from the engine, a task does that, one at a time per
group. Deliveries are stored afterwards: if the process dies before that, the messages are simply
delivered again. Acknowledgements are answered only when they are committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headwater.core.errors import StorageUnavailable, StreamError, TooBusy
from headwater.core.groups import decisions
from headwater.core.groups.commands import Ack, Command, Nack
from headwater.core.groups.decisions import Outcome, Read
from headwater.core.groups.mutations import MemberReturned
from headwater.core.groups.state import GroupState, Outstanding, format_receipt
from headwater.core.groups.turns import Taker
from headwater.core.limits import MIB
from headwater.service import replies
from headwater.service.entries import Entry
from headwater.service.groups.acks import Acks
from headwater.service.groups.figures import WORDS, GroupFigures
from headwater.service.groups.members import Ending, Waiter, demand_of, next_served
from headwater.service.groups.messages import MessageReader, Origins
from headwater.service.groups.storing import StoredGroup
from headwater.service.replies import Reply
from headwater.service.timers import Alarm, Timers
from headwater.service.writer import Writer

_TOKEN_BITS: Final = 47
_READ_AT_ONCE_MAX: Final = 1_000
_READ_BYTES_MAX: Final = 16 * MIB
_MEMBERS_REMEMBERED_MAX: Final = 10_000
_BUSY_RETRY_MS: Final = 50
_FAILURE_RETRY_MS: Final = 1_000


class Group(StoredGroup):
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
        super().__init__(state, entry, writer, timers, clock, figures)
        self.waiters: dict[Waiter, None] = {}
        """Waiting members, in order of their turn."""
        self.members: dict[str, int] = {}
        """When each member was last seen."""
        self.origins: Origins = {}
        """The appends of the messages being delivered."""
        self._connections: Counter[str] = Counter()
        self._reader = reader
        self._timers = timers
        self._alarm = Alarm(timers, self.kick)
        self._bury = bury
        self._on_void = on_void
        self._awaited = awaited
        """The groups of this stream with waiting members."""
        self._acks = Acks()
        """Acknowledgements since the last turn."""
        self._turn_planned = False
        self._pump: asyncio.Task[None] | None = None
        """Reads from the engine what is to be delivered."""
        self._after_pump: list[Callable[[], None]] = []
        self._again = False
        self._kept_from = 0
        """The first position the stream kept at the last check."""
        self.last_seen_ms = clock()

    # ── For the writer ───────────────────────────────────────────────────────────────────────

    def forget_state(self) -> None:
        """A commit failed: this copy is void. Waiting members come back and find a fresh one."""
        self.dismiss(StorageUnavailable())
        self._on_void()

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
        if self.state.absent:
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
            self.returned += messages
            return
        receipts = [format_receipt(self.state.record.id, message) for message in messages]
        command = Nack(receipts, count=False)
        try:
            self.store(decisions.decide(self.state, command, self._clock()).mutations)
        except StreamError:
            # The writer accepts nothing now.
            due_ms = self._clock() + _BUSY_RETRY_MS
            self._timers.at(due_ms, lambda: self.take_back(messages))
            return
        returned = (*self.returned, *messages)
        self.returned = [message for message in returned if self._unstored.recalls(message)]
        self.kick()

    def continue_from(self, before: Group) -> None:
        """Take the place of a copy whose commit has failed, unless that was another group."""
        if before.state.record != self.state.record:
            return
        self.take_over(before)
        if before.returned:
            self.take_back(before.returned)

    def dismiss(self, error: StreamError) -> None:
        """This copy is no longer used."""
        self._void(error)
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
        if isinstance(command, Ack):
            reply: Reply[Outcome] = Reply()
            self.acknowledge(command, reply)
            return reply
        decision = decisions.decide(self.state, command, self._clock())
        future = self.submit(decision.mutations, decision.reply)
        self._count_settled(type(command), [decision.reply])
        self.kick()
        return future

    def acknowledge(self, command: Ack, waiter: replies.Waiter) -> None:
        """Join the other acknowledgements of this turn."""
        if self._end is not None:
            raise self._end
        self.kick()
        self._acks.add(command.receipts, waiter)

    def settle_acks(self) -> None:
        """Decide and store the acknowledgements that came since the last turn."""
        if not self._acks:
            return
        acks, self._acks = self._acks, Acks()
        try:
            decision = decisions.decide_acks(self.state, acks.requests, self._clock())
            committed = self.submit(decision.mutations, decision.reply)
        except StreamError as error:
            acks.fail(error)
            return
        except Exception as error:
            self.figures.watch.failed(error)
            acks.fail(StorageUnavailable("the group could not be served; try again"))
            return
        self._count_settled(Ack, decision.reply)
        acks.answer_after(committed)

    def _count_settled(self, kind: type[Command], outcomes: Sequence[Outcome]) -> None:
        self.figures.settled[WORDS[kind]] += sum([len(outcome.done) for outcome in outcomes])
        for consumer in {message.consumer for outcome in outcomes for message in outcome.done}:
            if consumer is not None:
                self.seen(consumer)

    # ── Handing out ──────────────────────────────────────────────────────────────────────────

    def kick(self) -> None:
        """Something changed: check whether a member can be served."""
        if not self._turn_planned and not self.gone:
            self._turn_planned = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def after_pump(self, action: Callable[[], None]) -> None:
        """Run something after everyone who can be served now has been."""
        if self._pump is None and not self._turn_planned:
            action()
        else:
            self._after_pump.append(action)

    def _take_turn(self) -> None:
        self._turn_planned = False
        self.settle_acks()
        if self._pump is not None:
            self._again = True
            return
        retry_ms = 0
        try:
            if not self._serve_at_once():
                self._pump = asyncio.get_running_loop().create_task(self._run())
                return
        except Exception as error:
            retry_ms = self._failed(error)
        self._end_turn(retry_ms)

    def _serve_at_once(self) -> bool:
        """Serve members from memory. False if something has to be read first."""
        self._again = True
        while self._again and not self.gone:
            self._again = False
            most, most_bytes = self._prepare()
            if most <= 0:
                break
            self.origins = {}
            found = self._reader.at_hand(self.entry, self.state, most, most_bytes, self.origins)
            if found is None:
                return False
            self._hand_out(*found)
        return True

    async def _run(self) -> None:
        retry_ms = 0
        try:
            self._again = True
            while self._again and not self.gone:
                self._again = False
                await self._step()
        except Exception as error:
            retry_ms = self._failed(error)
        finally:
            self._pump = None
            self._end_turn(retry_ms)

    async def _step(self) -> None:
        most, most_bytes = self._prepare()
        if most <= 0:
            return
        self.origins = {}
        read, bodies = await self._reader.to_hand_out(
            self.entry, self.state, self._clock(), most, most_bytes, self.origins
        )
        if not self.gone:
            self._hand_out(read, bodies)

    def _failed(self, error: Exception) -> int:
        """Members could not be served. Returns after how many milliseconds to try again."""
        if isinstance(error, TooBusy):
            # Nothing was decided without being stored, and the members can wait a little longer.
            return _BUSY_RETRY_MS
        if isinstance(error, StreamError):
            # Nothing could be read. The state itself is still valid.
            self._turn_away(error)
        else:
            # Nobody waits for this turn. The failure must be visible, and must not end the group.
            self.figures.watch.failed(error, _FAILURE_RETRY_MS / 1000)
            self._turn_away(StorageUnavailable("the group could not be served; try again"))
        return _FAILURE_RETRY_MS

    def _end_turn(self, retry_ms: int) -> None:
        self._set_alarm(retry_ms)
        if self._turn_planned:
            # Someone came meanwhile, and may still be served.
            return
        actions, self._after_pump = self._after_pump, []
        for action in actions:
            action()

    def _prepare(self) -> tuple[int, int]:
        """Take back what is over; returns how much can be delivered."""
        self._settle_cleared()
        self._expire()
        if self.state.given_up:
            self._bury(self)
        return self._demand()

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
        if expired:
            self.store(expired)
        for mutation in expired:
            if isinstance(mutation, MemberReturned):
                self.members.pop(mutation.consumer, None)

    def _demand(self) -> tuple[int, int]:
        """How many messages are wanted, and at most how many bytes of them."""
        most = min(self.state.room, _READ_AT_ONCE_MAX)
        demand, demand_bytes = demand_of(self.waiters, most, _READ_BYTES_MAX)
        return min(demand, most), min(demand_bytes, _READ_BYTES_MAX)

    def _hand_out(self, read: Read, bodies: dict[int, bytes]) -> None:
        if not bodies:
            return
        in_full = self._has_plenty(len(bodies))
        waiters = next_served(self.waiters, len(bodies), in_full=in_full)
        takers = [Taker(w.consumer, w.demand, w.most_bytes) for w in waiters]
        token = random.getrandbits(_TOKEN_BITS)
        decision = decisions.decide_hand_out(self.state, takers, read, self._clock(), token)
        self.store(decision.mutations)
        shares = decision.reply.shares
        for waiter, messages in zip(waiters, shares, strict=True):
            if messages:
                self.figures.deliveries += len(messages)
                if read.again:
                    self.figures.redeliveries += sum([m.deliveries > 1 for m in messages])
                waiter.give([(m, bodies[m.ref.number]) for m in messages], self.lag)
        for index in decision.reply.turns:
            # A fetch is over once it has been given something.
            if shares[index] and waiters[index] in self.waiters:
                del self.waiters[waiters[index]]
                self.waiters[waiters[index]] = None
        self.origins = {}
        if self.waiters:
            # What was read may be blocked on its keys: then read further.
            self._again = True

    def _has_plenty(self, count: int) -> bool:
        """Whether everyone gets all that they ask for, though it cannot be read at once.

        Then some get all of it now and the others next, instead of everyone a part.
        """
        view, state = self.entry.view, self.state
        if count < _READ_AT_ONCE_MAX or view is None or state.config.order_by is not None:
            return False
        wanted = sum([waiter.demand for waiter in self.waiters])
        return wanted <= min(state.room, view.messages - state.cursor.number)

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

    @property
    def busy(self) -> bool:
        """Whether this copy has to stay in memory."""
        state = self.state
        return not self.gone and bool(
            self.waiters
            or self.pending
            or self._pump
            or self._acks
            or self._unstored
            or state.in_flight
            or state.given_up
            or not state.config.durable
        )
