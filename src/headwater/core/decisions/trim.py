"""Letting go of what a stream need not keep any more; see `headwater.core.retention`."""

from __future__ import annotations

from dataclasses import replace

from headwater.core.decisions.commands import Decision
from headwater.core.stream import StreamState, Trimmed


def decide_trim(state: StreamState, position: int, now_ms: int) -> Decision[bool]:
    """Keep a stream from a position on; the reply says whether anything was let go of."""
    gone = state.deleted or state.soft_deleted or state.config.retention is None
    if gone or not state.config.kept_from < position <= state.tail:
        return Decision(False)
    config = replace(state.config, kept_from=position)
    return Decision(True, (Trimmed(config.id, now_ms, config),))
