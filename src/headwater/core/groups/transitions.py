"""What can happen to a group.

Each function changes the state and returns what has to be stored. Time and random tokens come in
as arguments. The lease of a message that ran out is taken back by `expire`, which comes first
whenever a group is looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop
from typing import NamedTuple

from msgspec.structs import replace

from headwater.core.groups.state import (
    BLOCKED,
    GIVEN_UP,
    LEASED,
    WAITING,
    GroupAdvanced,
    GroupMutation,
    GroupState,
    MessageRef,
    MessagesMarked,
    MessagesSettled,
    Outstanding,
)


class Taken(NamedTuple):
    """A message read from the stream at the cursor."""

    ref: MessageRef
    key: str | None = None


class Outcome(NamedTuple):
    """What an operation on receipts came to."""

    done: list[Outstanding]
    stale: list[str]
    changes: list[GroupMutation]


def admit(
    state: GroupState, taken: Iterable[Taken], cursor: MessageRef, now_ms: int
) -> list[GroupMutation]:
    """Take messages from the stream: from now on they are outstanding and the cursor is past."""
    marked: list[Outstanding] = []
    for ref, key in taken:
        phase = WAITING
        if key is not None:
            queue = state.keys.setdefault(key, deque())
            phase = BLOCKED if queue else WAITING
            queue.append(ref.number)
        message = Outstanding(ref, phase, now_ms, key=key)
        state.put(message)
        marked.append(message)
    state.cursor = cursor
    return [GroupAdvanced(state.record.id, cursor), *_marked(state, marked)]


def deliver(
    state: GroupState,
    consumer: str,
    most: int,
    now_ms: int,
    token: int,
    fresh: deque[MessageRef] | None = None,
) -> tuple[list[Outstanding], list[GroupMutation]]:
    """Lease messages to a member, oldest first: those that wait, then those that are `fresh`.

    Fresh ones were read from the stream and have no key. They need not wait first, so most
    messages are leased without further ado. The rest of them has to be admitted, together with
    what this returns.
    """
    leased: list[Outstanding] = []
    most = min(most, state.room)
    until_ms = now_ms + state.config.ack_timeout_ms
    while len(leased) < most:
        message = state.first_waiting()
        if message is None or message.until_ms > now_ms:
            break
        heappop(state.waiting)
        leased.append(
            replace(
                message,
                phase=LEASED,
                until_ms=until_ms,
                deliveries=message.deliveries + 1,
                token=token,
                consumer=consumer,
            )
        )
    if fresh:
        for _ in range(min(most - len(leased), len(fresh))):
            leased.append(Outstanding(fresh.popleft(), LEASED, until_ms, 1, token, consumer))
    if leased:
        state.put_leases(leased, consumer, until_ms)
    return leased, _marked(state, leased)


def expire(state: GroupState, now_ms: int) -> list[GroupMutation]:
    """Take back what was not settled in time."""
    returned: list[Outstanding] = []
    while (message := state.first_lease()) is not None and message.until_ms <= now_ms:
        returned.append(_give_back(state, message, now_ms))
    return _marked(state, returned)


def release(state: GroupState, consumer: str, now_ms: int) -> list[GroupMutation]:
    """A member is gone: everything it holds may go to others at once."""
    held = [
        message
        for message in state.outstanding.values()
        if message.phase is LEASED and message.consumer == consumer
    ]
    return _marked(state, [_give_back(state, message, now_ms) for message in held])


def stale(state: GroupState, receipts: Iterable[str]) -> list[str]:
    """The receipts that stand for nothing any more."""
    return _held(state, receipts)[1]


def ack(state: GroupState, receipts: Iterable[str]) -> Outcome:
    """Members are done with messages."""
    done, unknown = _held(state, receipts)
    return Outcome(done, unknown, settle(state, done))


def nack(
    state: GroupState, receipts: Iterable[str], delay_ms: int, now_ms: int, *, count: bool = True
) -> Outcome:
    """Members return messages, to be delivered again after a delay.

    Without `count` the delivery does not count, for a member that shuts down before it began.
    """
    done, unknown = _held(state, receipts)
    returned = [
        _give_back(state, message, now_ms + delay_ms, uncounted=0 if count else 1)
        for message in done
    ]
    return Outcome(done, unknown, _marked(state, returned))


def reject(state: GroupState, receipts: Iterable[str]) -> Outcome:
    """Members say that messages cannot be worked on, by anyone."""
    done, unknown = _held(state, receipts)
    rejected = [replace(message, phase=GIVEN_UP, consumer=None) for message in done]
    for message in rejected:
        state.put(message)
    return Outcome(done, unknown, _marked(state, rejected))


def extend(state: GroupState, receipts: Iterable[str], more_ms: int, now_ms: int) -> Outcome:
    """Members need more time: the leases end that much from now."""
    done, unknown = _held(state, receipts)
    longer = [replace(message, until_ms=now_ms + more_ms) for message in done]
    for message in longer:
        state.put(message)
    return Outcome(done, unknown, _marked(state, longer))


def settle(state: GroupState, messages: Sequence[Outstanding]) -> list[GroupMutation]:
    """Messages are finished. What waited behind them for its key goes on."""
    if not messages:
        return []
    state.drop(messages)
    unblocked: list[Outstanding] = []
    for message in messages if state.keys else ():
        if message.key is not None:
            follower = _next_of_key(state, message.key, message.ref.number)
            if follower is not None:
                unblocked.append(follower)
    numbers = tuple([message.ref.number for message in messages])
    return [MessagesSettled(state.record.id, numbers), *_marked(state, unblocked)]


def seek(state: GroupState, cursor: MessageRef) -> list[GroupMutation]:
    """Go on from somewhere else. Whatever is out there is forgotten; its receipts are stale."""
    state.cursor = cursor
    state.drop(list(state.outstanding.values()))
    state.waiting.clear()
    state.leases.clear()
    state.keys.clear()
    return [GroupAdvanced(state.record.id, cursor, reset=True)]


# ── Parts ────────────────────────────────────────────────────────────────────────────────────


def _held(state: GroupState, receipts: Iterable[str]) -> tuple[list[Outstanding], list[str]]:
    """The messages that receipts stand for, and the receipts that stand for nothing any more."""
    found: dict[int, Outstanding] = {}
    stale: list[str] = []
    for receipt in receipts:
        message = state.leased_as(receipt)
        if message is None:
            stale.append(receipt)
        else:
            found[message.ref.number] = message
    return list(found.values()), stale


def _give_back(
    state: GroupState, message: Outstanding, until_ms: int, uncounted: int = 0
) -> Outstanding:
    """Return a message: to be delivered again, unless that was done often enough."""
    deliveries = message.deliveries - uncounted
    limit = state.config.max_deliveries
    phase = GIVEN_UP if limit and deliveries >= limit else WAITING
    returned = replace(
        message, phase=phase, until_ms=until_ms, deliveries=deliveries, consumer=None
    )
    state.put(returned)
    return returned


def _next_of_key(state: GroupState, key: str, settled: int) -> Outstanding | None:
    queue = state.keys[key]
    was_first = queue[0] == settled
    queue.remove(settled)
    if not queue:
        del state.keys[key]
        return None
    follower = state.outstanding[queue[0]]
    if not was_first or follower.phase is not BLOCKED:
        return None
    follower = replace(follower, phase=WAITING)
    state.put(follower)
    return follower


def _marked(state: GroupState, messages: Sequence[Outstanding]) -> list[GroupMutation]:
    return [MessagesMarked(state.record.id, tuple(messages))] if messages else []
