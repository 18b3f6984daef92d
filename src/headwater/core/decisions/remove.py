"""Deleting a stream, by request or because its time is over.

A stream with forks is soft-deleted: its path stays taken and its data stays for the
forks. Without forks it is deleted, and with it every soft-deleted ancestor that has no other fork.
If there are very many of those, the first few go with it; what is left then is an *orphan*,
soft-deleted and without forks, and goes the same way a moment later.

A stream whose time is over is treated as if it had been deleted at that moment. One that is deleted
by request may be kept for a while; see `headwater.core.decisions.undelete`.
"""

from __future__ import annotations

from headwater.core.decisions.undelete import kept_until_ms
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.stream import Deleted, ForkCounted, Mutation, SoftDeleted, StreamState


def decide_delete(
    state: StreamState, ancestors: tuple[StreamState, ...], now_ms: int, grace_ms: int = 0
) -> StreamDecision[None]:
    """Delete a stream. `ancestors` are its sources, nearest first, as far as they are loaded."""
    return Decision(None, remove(state, now_ms, ancestors, grace_ms))


def decide_orphan(
    state: StreamState, ancestors: tuple[StreamState, ...], now_ms: int
) -> StreamDecision[bool]:
    """Delete a soft-deleted stream that has lost its last fork; the reply says whether it had."""
    if state.deleted or not state.soft_deleted or state.forks:
        return Decision(False)
    return Decision(True, remove(state, now_ms, ancestors))


def decide_expire(
    state: StreamState, ancestors: tuple[StreamState, ...], now_ms: int
) -> StreamDecision[bool]:
    """Delete a stream whose time is over; the reply says whether it was."""
    if state.deleted or state.soft_deleted or not state.is_expired(now_ms):
        return Decision(False)
    return Decision(True, remove(state, now_ms, ancestors))


def remove(
    state: StreamState, now_ms: int, ancestors: tuple[StreamState, ...], grace_ms: int = 0
) -> tuple[Mutation, ...]:
    if state.forks:
        return (SoftDeleted(state.config.id, now_ms),)
    kept = kept_until_ms(state, ancestors[0] if ancestors else None, now_ms, grace_ms)
    mutations: list[Mutation] = [Deleted(state.config.id, now_ms, kept)]
    for number, ancestor in enumerate(ancestors, start=1):
        mutations.append(ForkCounted(ancestor.config.id, -1))
        if not ancestor.soft_deleted or ancestor.forks > 1:
            break
        if number == len(ancestors) and ancestor.config.source_id is not None:
            # Its own source has to be told, and is not at hand.
            break
        mutations.append(Deleted(ancestor.config.id, now_ms))
    return tuple(mutations)
