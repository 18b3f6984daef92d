"""Undoing a deletion.

A stream that is deleted by request is kept for a grace period: its path is free at once and nobody
sees it, but within that time it can be undeleted, with its data, producers and groups. Of several
streams deleted at one path, the last one comes back. It comes back only if

- the path is free. A stream created there since has to be deleted first;
- it has not expired: its TTL runs on while it is deleted, and restarts when it is undeleted;
- a fork still finds its source, with everything it had inherited. A fork whose source is already
  deleted, and exists only for its forks, is not kept at all.

A stream with forks is soft-deleted: the forks read it, its path stays taken, and what they do not
need is dropped at once, so it cannot be undeleted. Neither can a stream that expired.
"""

from __future__ import annotations

from headwater.core.errors import StreamNotFound, UndeleteConflict
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.stream import ForkCounted, Mutation, StreamConfig, StreamState, Undeleted


def kept_until_ms(
    state: StreamState, source: StreamState | None, now_ms: int, grace_ms: int
) -> int | None:
    """Until when a stream deleted now can be undeleted; None if it cannot."""
    if not grace_ms:
        return None
    if state.config.source_id is not None and (source is None or source.soft_deleted):
        return None
    return now_ms + grace_ms


def decide_undelete(
    deleted: StreamState | None,
    path: str,
    taken: StreamState | None,
    source: StreamState | None,
    now_ms: int,
) -> StreamDecision[str]:
    """Bring a deleted stream back; the reply is its tail. `taken` is the stream now at its path."""
    if deleted is None or deleted.is_expired(now_ms):
        raise StreamNotFound(path)
    if taken is not None and not taken.deleted:
        raise UndeleteConflict("there is another stream at this path; delete that one first")
    config = deleted.config
    mutations: list[Mutation] = [Undeleted(config.id, now_ms, deleted.undeleted(now_ms))]
    if config.source_id is not None:
        if source is None or not _has_what(source, config, now_ms):
            raise UndeleteConflict("the source of this fork no longer has all that it inherited")
        mutations.append(ForkCounted(config.source_id, 1))
    return Decision(deleted.tail_token, tuple(mutations))


def _has_what(source: StreamState, fork: StreamConfig, now_ms: int) -> bool:
    """Whether a source has what one of its forks had inherited.

    A live stream needs everything it keeps, so none of that was removed while the fork was deleted.
    """
    gone = source.deleted or source.soft_deleted or source.is_expired(now_ms)
    same = source.config.id == fork.source_id
    needed = min(fork.kept_from, fork.lineage.base)
    return same and not gone and source.config.kept_from <= needed
