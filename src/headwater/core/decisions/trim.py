"""Dropping what a stream no longer has to keep; see `headwater.core.retention`.

Clearing drops everything up to a position, whatever the retention. Offsets, producers, `Stream-Seq`
and known ids continue as before; snapshots of dropped positions are dropped too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headwater.core.mutations import Decision, StreamDecision
from headwater.core.retention import LOOK_AFTER_MS, trim_due_after_look
from headwater.core.stream import Mutation, StreamState, Trimmed, TrimPlanned


class Held(NamedTuple):
    """What a stream held at one moment."""

    tail: int
    limit: int
    """The first position within the stream's limits."""
    unsettled: int | None = None
    """The first position that a consumer group has not settled."""
    first_at_ms: int | None = None
    """When the first kept append was written, if there is one."""

    @property
    def first(self) -> int:
        """The first position to keep."""
        return self.limit if self.unsettled is None else min(self.limit, self.unsettled)


def decide_retention(state: StreamState, held: Held, now_ms: int) -> StreamDecision[bool]:
    """Drop what need not be kept and schedule the next check; True if anything was dropped."""
    retention = state.config.retention
    if state.deleted or state.soft_deleted or retention is None:
        return Decision(False)
    if state.tail == held.tail:
        held_back = held.first < held.limit
        due_ms = trim_due_after_look(retention, held.first_at_ms, now_ms, held_back=held_back)
    else:
        due_ms = now_ms + LOOK_AFTER_MS
    mutations: Sequence[Mutation] = decide_trim(state, held.first, now_ms).mutations
    trimmed = bool(mutations)
    if due_ms != state.trim_due_ms:
        mutations = (*mutations, TrimPlanned(state.config.id, due_ms))
    return Decision(trimmed, mutations)


def decide_trim(state: StreamState, position: int, now_ms: int) -> StreamDecision[bool]:
    """Drop everything before a position; the reply says whether there was anything."""
    if not state.config.kept_from < position <= state.tail:
        return Decision(False)
    config = replace(state.config, kept_from=position)
    return Decision(True, (Trimmed(config.id, now_ms, config),))
