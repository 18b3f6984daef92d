"""Forgetting producers that were idle for too long; the rule is in `headwater.core.producers`."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.mutations import Decision, StreamDecision
from headwater.core.producers import ProducerLimits
from headwater.core.stream import ProducersForgotten, StreamState


def decide_forget(
    state: StreamState, idle: Sequence[str], limits: ProducerLimits, now_ms: int
) -> StreamDecision[int]:
    """Forget producers that the engine listed as idle; the reply is their number.

    Those used since then are in memory, and stay.
    """
    ids = tuple(
        producer_id
        for producer_id in idle
        if limits.remembered(state.producers.get(producer_id), now_ms) is None
    )
    mutations = (ProducersForgotten(state.config.id, ids),) if ids else ()
    return Decision(len(ids), mutations)
