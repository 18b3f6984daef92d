"""Whether a stream exists, for whom, and when it was last used."""

from __future__ import annotations

from headwater.core.errors import SourceDeleted, StreamGone, StreamNotFound
from headwater.core.expiry import touch_interval_ms
from headwater.core.stream import StreamState, Touched


def require(state: StreamState | None, path: str, now_ms: int) -> StreamState:
    """The stream, if it exists for everyone."""
    if state is None or state.deleted:
        raise StreamNotFound(path)
    if state.soft_deleted:
        raise StreamGone(path)
    if state.is_expired(now_ms):
        raise StreamGone(path) if state.forks else StreamNotFound(path)
    return state


def decide_touch(state: StreamState, now_ms: int) -> Touched | None:
    """A mutation if the stored time of the last access is too stale to keep."""
    interval_ms = touch_interval_ms(state.config.lifetime)
    if interval_ms == 0 or now_ms - state.stored_touch_ms < interval_ms:
        return None
    return Touched(state.config.id, now_ms)


def is_taken(state: StreamState | None, now_ms: int) -> bool:
    """Whether a path has a stream, including one that is deleted but kept for its forks."""
    if state is None or state.deleted:
        return False
    return state.soft_deleted or state.forks > 0 or not state.is_expired(now_ms)


def require_source(state: StreamState | None, path: str, now_ms: int) -> StreamState:
    """The stream to fork from, if it can be forked."""
    try:
        return require(state, path, now_ms)
    except StreamGone:
        raise SourceDeleted(path) from None
