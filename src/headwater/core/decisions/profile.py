"""Giving a stream a profile.

A profile says what the messages of a stream are. It can be changed at any time and applies to what
is appended from then on; existing messages are not checked again.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.core.live.profile import Profile, check_profile
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.stream import Reconfigured, StreamState


def decide_profile(state: StreamState, profile: Profile, now_ms: int) -> StreamDecision[Profile]:
    """Decide on a new profile for a stream that `require` let through."""
    config = state.config
    check_profile(profile, config.content_type)
    if profile == config.profile:
        return Decision(profile)
    changed = replace(config, profile=profile)
    return Decision(profile, (Reconfigured(config.id, now_ms, changed),))
