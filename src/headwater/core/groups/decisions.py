"""The decisions: given the state of a group and what happens to it, what follows?

Each function is pure: it returns the mutations to store and the reply to give, and changes nothing.
Time and random tokens are passed in.

**Leases.** A lease ends `ack_timeout_ms` after the delivery, unless it is extended. A message not
settled by then waits for its next delivery. A receipt is stale as soon as its lease has ended.

**Push members.** A member that closes its connection has a grace period of 10 s, at most its ack
timeout, to reconnect under the same name and keep its messages and receipts; after that they go to
others. If the server ends the connection, the member does not end: its leases last as long as they
would have, and if it does not come back, those deliveries do not count. Nor do deliveries it may
not have read because the server cut it off for reading too slowly, unless it settles them.

**Counted deliveries.** A message that comes back after `max_deliveries` counted deliveries is given
up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from headwater.core.groups.commands import Ack, Command, Extend, Nack
from headwater.core.groups.config import GroupConfig, Wanted, reconfigured
from headwater.core.groups.mutations import (
    GroupAdvanced,
    GroupChanged,
    GroupCreated,
    GroupMutation,
    MemberAbsent,
    MemberReturned,
    MessagesLeased,
    MessagesMarked,
    MessagesSettled,
)
from headwater.core.groups.state import (
    BLOCKED,
    GIVEN_UP,
    LEASED,
    WAITING,
    GroupState,
    MessageRef,
    Outstanding,
)
from headwater.core.groups.turns import Taker, deal, next_turns
from headwater.core.mutations import Decision, GroupDecision

GRACE_MS: Final = 10_000


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a command."""

    done: list[Outstanding]
    stale: list[str]


# ── Commands of members ──────────────────────────────────────────────────────────────────────


def decide(state: GroupState, command: Command, now_ms: int) -> GroupDecision[Outcome]:
    """Members acknowledge, return, extend or reject messages."""
    if isinstance(command, Ack):
        decision = decide_acks(state, [command.receipts], now_ms)
        return Decision(decision.reply[0], decision.mutations)
    outcome = _held(state, command.receipts, now_ms, {})
    done = outcome.done
    if not done:
        return Decision(outcome)
    if isinstance(command, Nack):
        until_ms = now_ms + command.delay_ms
        changed = [_returned(state, m, until_ms, counts=command.count) for m in done]
    elif isinstance(command, Extend):
        changed = [replace(message, until_ms=now_ms + command.ms) for message in done]
    else:
        changed = [replace(message, phase=GIVEN_UP, consumer=None) for message in done]
    return Decision(outcome, _marked(state, changed))


def decide_acks(
    state: GroupState, requests: Sequence[Sequence[str]], now_ms: int
) -> GroupDecision[list[Outcome]]:
    """Members acknowledge messages, in one request after the other.

    The same as deciding and evolving each, with a single mutation for all of them: a receipt that
    an earlier request has used is stale.
    """
    used: dict[int, Outstanding] = {}
    outcomes = [_held(state, receipts, now_ms, used) for receipts in requests]
    return Decision(outcomes, decide_settle(state, [*used.values()]) if used else ())


def decide_settle(state: GroupState, messages: Sequence[Outstanding]) -> Sequence[GroupMutation]:
    """Remove finished messages. Messages blocked on their keys can be delivered."""
    numbers = [message.ref.number for message in messages]
    settled = MessagesSettled(state.record.id, numbers)
    if not state.keys:
        return (settled,)
    followers = _followers(state, messages, set(numbers))
    return (settled, *_marked(state, followers))


def _held(
    state: GroupState, receipts: Sequence[str], now_ms: int, used: dict[int, Outstanding]
) -> Outcome:
    """The messages of valid receipts, and the receipts that are stale.

    Messages that are `used` are not held any more; those found here are added to them.
    """
    found: dict[int, Outstanding] = {}
    stale: list[str] = []
    leased_as = state.leased_as
    for receipt in receipts:
        message = leased_as(receipt, now_ms)
        if message is None or message.ref.number in used:
            stale.append(receipt)
        else:
            found[message.ref.number] = message
    used.update(found)
    return Outcome([*found.values()], stale)


def _followers(
    state: GroupState, messages: Sequence[Outstanding], settled: set[int]
) -> list[Outstanding]:
    """For each key, the next message that may be worked on."""
    followers: list[Outstanding] = []
    for key in {message.key for message in messages if message.key is not None}:
        first = next((number for number in state.keys[key] if number not in settled), None)
        follower = state.outstanding[first] if first is not None else None
        if follower is not None and follower.phase is BLOCKED:
            followers.append(replace(follower, phase=WAITING))
    return followers


def _returned(
    state: GroupState, message: Outstanding, until_ms: int, *, counts: bool = True
) -> Outstanding:
    """A returned message: waiting for redelivery, or given up after enough deliveries."""
    deliveries = message.deliveries if counts else message.deliveries - 1
    phase = GIVEN_UP if state.config.is_exhausted(deliveries) else WAITING
    return replace(message, phase=phase, until_ms=until_ms, deliveries=deliveries, consumer=None)


def _marked(state: GroupState, messages: Sequence[Outstanding]) -> tuple[GroupMutation, ...]:
    return (MessagesMarked(state.record.id, tuple(messages)),) if messages else ()


# ── Time, and members joining and leaving ────────────────────────────────────────────────────


def decide_expire(state: GroupState, now_ms: int) -> Sequence[GroupMutation]:
    """Take back messages not settled in time, and those of members that did not come back."""
    if not state.absent and not (state.leases and state.leases[0][0] <= now_ms):
        return ()
    over = {message.ref.number: message for message in state.ended(now_ms)}
    gone = [name for name, until in state.absent.items() if until is not None and until <= now_ms]
    for consumer in gone:
        over |= {message.ref.number: message for message in state.held_by(consumer)}
    returned = [
        _returned(state, message, now_ms, counts=not _uncounted(state, message))
        for _, message in sorted(over.items())
    ]
    forgotten = [MemberReturned(state.record.id, consumer) for consumer in gone]
    return (*_marked(state, returned), *forgotten)


def _uncounted(state: GroupState, message: Outstanding) -> bool:
    """Whether its member may never have read it, or was disconnected by the server."""
    parted = state.absent.get(message.consumer or "", 0) is None
    return parted or message.ref.number in state.unread


def decide_leave(state: GroupState, consumer: str, now_ms: int) -> Sequence[GroupMutation]:
    """A member closed its connection."""
    if consumer not in state.held:
        return ()
    until_ms = now_ms + min(GRACE_MS, state.config.ack_timeout_ms)
    return (MemberAbsent(state.record.id, consumer, until_ms),)


def decide_part(state: GroupState, consumer: str, *, cut_off: bool) -> Sequence[GroupMutation]:
    """The server ended a member's connection. If it cut it off, some messages did not arrive."""
    if consumer not in state.held:
        return ()
    held = state.held_by(consumer) if cut_off else ()
    unread = frozenset(message.ref.number for message in held)
    return (MemberAbsent(state.record.id, consumer, None, unread),)


def decide_return(state: GroupState, consumer: str) -> Sequence[GroupMutation]:
    """A member connects, again or for the first time."""
    return (MemberReturned(state.record.id, consumer),) if consumer in state.absent else ()


# ── Handing out ──────────────────────────────────────────────────────────────────────────────


class Read(msgspec.Struct, frozen=True):
    """Messages that were read and can be delivered."""

    again: dict[int, int]
    """Waiting messages: their sizes by number."""
    fresh: Sequence[MessageRef] = ()
    """The next messages after the cursor."""
    sizes: Sequence[int] = ()
    """Sizes of the fresh ones."""
    keys: Sequence[str | None] = ()
    """Keys of the fresh ones, in a group that keeps order."""
    cursor: MessageRef = MessageRef(0, 0, 0)
    """The cursor after the fresh ones."""


class HandedOut(msgspec.Struct, frozen=True):
    shares: list[list[Outstanding]]
    """What each taker gets."""
    turns: list[int]
    """The takers, in order of their next turn."""


def decide_hand_out(
    state: GroupState, takers: Sequence[Taker], read: Read, now_ms: int, token: int
) -> GroupDecision[HandedOut]:
    """Lease messages to members, in turn: waiting ones first, then fresh ones.

    In an unordered group, the cursor passes only messages that find a taker. In an ordered one,
    everything that was read joins the group, because a later message may be blocked on its key.
    """
    if read.again or read.keys:
        return _hand_out_any(state, takers, read, now_ms, token)
    # The hot path: fresh messages in any order.
    room, sizes, fresh = state.room, read.sizes, read.fresh
    dealt = deal(sizes if len(sizes) <= room else sizes[:room], takers)
    until_ms = now_ms + state.config.ack_timeout_ms
    taken = len(dealt[0]) if len(dealt) == 1 else sum(map(len, dealt))
    cursor = fresh[taken] if taken < len(fresh) else read.cursor
    shares = [
        [Outstanding(fresh[at], LEASED, until_ms, 1, token, taker.consumer) for at in indexes]
        for taker, indexes in zip(takers, dealt, strict=True)
    ]
    mutations = _leased(state, shares, until_ms, cursor)
    return Decision(HandedOut(shares, next_turns(dealt)), mutations)


def _leased(
    state: GroupState,
    shares: Sequence[list[Outstanding]],
    until_ms: int,
    cursor: MessageRef | None = None,
) -> list[GroupMutation]:
    messages = shares[0] if len(shares) == 1 else [m for share in shares for m in share]
    return [MessagesLeased(state.record.id, until_ms, messages, cursor)] if messages else []


def _hand_out_any(
    state: GroupState, takers: Sequence[Taker], read: Read, now_ms: int, token: int
) -> GroupDecision[HandedOut]:
    due = [m for m in state.due(now_ms, len(read.again)) if m.ref.number in read.again]
    free = _free(state, read)
    sizes = [*(read.again[m.ref.number] for m in due), *(read.sizes[at] for at in free)]
    offers = [(m.ref, m.deliveries + 1, m.key) for m in due]
    offers += [(read.fresh[at], 1, read.keys[at] if read.keys else None) for at in free]
    dealt = deal(sizes[: state.room], takers)
    until_ms = now_ms + state.config.ack_timeout_ms
    shares = [
        [
            Outstanding(ref, LEASED, until_ms, times, token, taker.consumer, key)
            for ref, times, key in map(offers.__getitem__, indexes)
        ]
        for taker, indexes in zip(takers, dealt, strict=True)
    ]
    mutations = _leased(state, shares, until_ms)
    taken = free[: max(0, sum(map(len, shares)) - len(due))]
    mutations += _advanced(state, read, free, taken, now_ms)
    return Decision(HandedOut(shares, next_turns(dealt)), mutations)


def _free(state: GroupState, read: Read) -> Sequence[int]:
    """The fresh messages that are not blocked on another."""
    if not read.keys:
        return range(len(read.fresh))
    first = {key: at for at, key in reversed([*enumerate(read.keys)])}
    return [
        at
        for at, key in enumerate(read.keys)
        if key is None or (first[key] == at and key not in state.keys)
    ]


def _advanced(
    state: GroupState, read: Read, free: Sequence[int], taken: Sequence[int], now_ms: int
) -> Sequence[GroupMutation]:
    """Move the cursor past fresh messages, of which some were `taken`."""
    if not read.keys:
        if not taken:
            return ()
        cursor = read.fresh[len(taken)] if len(taken) < len(read.fresh) else read.cursor
        return (GroupAdvanced(state.record.id, cursor),)
    leased, waiting = set(taken), set(free)
    rest = [
        Outstanding(ref, WAITING if at in waiting else BLOCKED, now_ms, key=key)
        for at, (ref, key) in enumerate(zip(read.fresh, read.keys, strict=True))
        if at not in leased
    ]
    return (GroupAdvanced(state.record.id, read.cursor), *_marked(state, rest))


# ── The group itself ─────────────────────────────────────────────────────────────────────────


def decide_put(state: GroupState, wanted: Wanted) -> GroupDecision[GroupConfig]:
    """Update the settings of a group."""
    config = reconfigured(state.config, wanted)
    if config == state.config:
        return Decision(config)
    changed = GroupChanged(state.record.id, config, state.paused)
    if state.config.durable or not config.durable:
        return Decision(config, (changed,))
    # It was in memory only: the engine needs all of it.
    created = GroupCreated(state.record, config, state.cursor)
    return Decision(config, (created, changed, *_marked(state, [*state.outstanding.values()])))


def decide_pause(state: GroupState, *, paused: bool) -> Sequence[GroupMutation]:
    return (GroupChanged(state.record.id, state.config, paused),)


def decide_seek(state: GroupState, cursor: MessageRef) -> Sequence[GroupMutation]:
    """Continue elsewhere. Everything outstanding is forgotten; its receipts are stale."""
    return (GroupAdvanced(state.record.id, cursor, reset=True),)
