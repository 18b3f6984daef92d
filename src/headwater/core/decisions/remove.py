"""Deleting a stream, by request or because it expired.

A stream with forks is soft-deleted: its path stays taken and its data stays for the forks. Without
forks it is deleted, and with it every soft-deleted ancestor that has no other fork. If there are
very many of those, only the first few go with it. The next one is then an *orphan*, soft-deleted
and without forks, and is deleted the same way shortly after.

An expired stream is treated as if it had been deleted when it expired. A stream that is deleted by
request may be kept for a grace period; see `headwater.core.decisions.undelete`.
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
    """Delete an expired stream; the reply says whether it had expired."""
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
            # Its own source has to be updated, and is not loaded.
            break
        mutations.append(Deleted(ancestor.config.id, now_ms))
    return tuple(mutations)
