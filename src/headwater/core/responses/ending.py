"""How a response ends early.

The reason and the close are one decision, so nobody sees one without the other. A closed response
stays as it is: the first reason counts.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.core.responses.about import About, Reason, about
from headwater.core.stream import Closed, Mutation, Reconfigured, StreamState


def decide_end(state: StreamState, reason: Reason, now_ms: int) -> tuple[Mutation, ...]:
    known = about(state.config)
    if state.closed or known is None:
        return ()
    described = About(known.type, reason).encode()
    config = replace(state.config, version=state.config.version + 1, description=described)
    return Reconfigured(config.id, now_ms, config), Closed(config.id, now_ms, None)
