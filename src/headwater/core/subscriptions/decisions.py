"""The decisions: given the state of a subscription and what happens to it, what follows?

Each function is pure: it returns the mutations to store, with a reply if there is one, and changes
nothing. `evolve` does that, once the mutations are queued for commit. Time, random ids and random
numbers are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from headwater.core.errors import InvalidOffset, UnknownOffset
from headwater.core.mutations import Decision, SubscriptionDecision
from headwater.core.offsets import Anchor, parse_offset
from headwater.core.subscriptions.errors import (
    AckConflict,
    AlreadyClaimed,
    Fenced,
    InvalidAck,
    NoPendingWork,
)
from headwater.core.subscriptions.state import (
    NOTHING_ACKED,
    LinksMarked,
    LinksRemoved,
    Mark,
    Phase,
    StreamTail,
    SubscriptionCreated,
    SubscriptionMutation,
    SubscriptionState,
    Wake,
    WakeChanged,
)

RETRY_MS_FIRST: Final = 1_000
RETRY_MS_MAX: Final = 60_000
JITTER: Final = 0.2

Changes = list[SubscriptionMutation]


class Proof(NamedTuple):
    """What shows that a caller holds the current wake."""

    token_generation: int
    generation: int
    wake_id: str


class Ack(NamedTuple):
    stream: str
    offset: str


def retry_delay_ms(failures: int, dice: float) -> int:
    """How long to wait after this many failures; `dice` is between 0 and 1."""
    doublings = min(failures - 1, 10)
    delay_ms = min(RETRY_MS_FIRST << doublings, RETRY_MS_MAX)
    return round(delay_ms * (1 + JITTER * (2 * dice - 1)))


# ── Wakes ────────────────────────────────────────────────────────────────────────────────────


def decide_begin(state: SubscriptionState, wake_id: str, now_ms: int) -> Changes:
    """Something is pending and nobody is working on it: begin a wake."""
    if state.wake.phase is not Phase.IDLE or not state.pending:
        return []
    return [_next(state, wake_id, now_ms)]


def decide_offered(state: SubscriptionState, wake_id: str) -> Changes:
    """The event is in the wake stream, or is committed in the same transaction."""
    if not _announcing(state, wake_id):
        return []
    return [_wake(state, phase=Phase.OFFERED, until_ms=0, attempts=0)]


def decide_delivered(state: SubscriptionState, wake_id: str, now_ms: int) -> Changes:
    """The webhook has accepted the wake, and will report."""
    if not _announcing(state, wake_id):
        return []
    return [_leased(state, now_ms)]


def decide_completed(
    state: SubscriptionState, wake_id: str, marks: Sequence[Mark], next_id: str, now_ms: int
) -> Changes:
    """The webhook is done with everything it was shown."""
    if state.wake.wake_id != wake_id or state.wake.phase is Phase.IDLE:
        return []
    newer = [mark for mark in marks if _is_progress(state, mark)]
    return list(_finished(state, newer, next_id, now_ms).mutations)


def decide_failed(state: SubscriptionState, wake_id: str, dice: float, now_ms: int) -> Changes:
    """The wake could not be announced; it will be retried."""
    if not _announcing(state, wake_id):
        return []
    failures = state.wake.attempts + 1
    due_ms = now_ms + retry_delay_ms(failures, dice)
    return [_wake(state, until_ms=due_ms, attempts=failures)]


def decide_lapse(state: SubscriptionState, next_id: str, now_ms: int) -> Changes:
    """An expired lease frees the work."""
    if state.wake.phase is not Phase.LEASED or state.wake.until_ms > now_ms:
        return []
    return list(_finished(state, [], next_id, now_ms).mutations)


# ── Workers ──────────────────────────────────────────────────────────────────────────────────


def decide_claim(state: SubscriptionState, worker: str, now_ms: int) -> Changes:
    """A worker takes the current wake."""
    wake = state.wake
    if wake.phase is Phase.LEASED:
        raise AlreadyClaimed(wake.holder or "", wake.generation)
    if wake.phase is Phase.IDLE:
        raise NoPendingWork
    return [_leased(state, now_ms, worker)]


def decide_settle(
    state: SubscriptionState,
    proof: Proof,
    acks: Iterable[Ack],
    *,
    done: bool,
    next_id: str,
    now_ms: int,
) -> SubscriptionDecision[bool]:
    """Progress: acknowledge, then continue with a longer lease or finish."""
    _check(state, proof)
    marks = [_acknowledged(state, ack) for ack in acks]
    # Of several acknowledgements for one stream, the furthest counts.
    latest = {mark.path: mark for mark in sorted(marks, key=lambda mark: mark.acked)}
    if done:
        return _finished(state, list(latest.values()), next_id, now_ms)
    changes: Changes = [_leased(state, now_ms, state.wake.holder)]
    if latest:
        changes.append(LinksMarked(state.record.id, tuple(latest.values())))
    return Decision(False, changes)


def decide_release(
    state: SubscriptionState, proof: Proof, next_id: str, now_ms: int
) -> SubscriptionDecision[bool]:
    """The holder gives the wake back unfinished."""
    _check(state, proof)
    return _finished(state, [], next_id, now_ms)


# ── Links ────────────────────────────────────────────────────────────────────────────────────


def decide_create(state: SubscriptionState) -> SubscriptionCreated:
    """A new subscription begins at the tail of every existing stream."""
    marks = [
        known.mark(acked=known.tail) if known.lineage is not None else known.mark()
        for known in state.links.values()
    ]
    return SubscriptionCreated(state.record, state.config, tuple(marks))


def decide_link(
    state: SubscriptionState, paths: Iterable[str], there: Mapping[str, StreamTail]
) -> Changes:
    """Link streams explicitly. Those already linked keep their place."""
    marks: list[Mark] = []
    for path in dict.fromkeys(paths):
        known, stream = state.links.get(path), there.get(path)
        if known is not None:
            if not known.explicit:
                marks.append(known.mark()._replace(explicit=True))
        elif stream is not None:
            marks.append(Mark(path, True, stream.lineage.own, stream.tail))
        else:
            marks.append(Mark(path, True, 0, NOTHING_ACKED))
    if not marks:
        return []
    streams = tuple(there[mark.path] for mark in marks if mark.path in there)
    return [LinksMarked(state.record.id, tuple(marks), streams)]


def decide_unlink(state: SubscriptionState, path: str) -> Changes:
    """Remove an explicit link. A stream that the pattern covers stays, with its place."""
    known = state.links.get(path)
    if known is None or not known.explicit:
        return []
    if known.lineage is not None and state.globs(path):
        kept = known.mark()._replace(explicit=False)
        return [LinksMarked(state.record.id, (kept,))]
    return [LinksRemoved(state.record.id, (path,))]


# ── Parts ────────────────────────────────────────────────────────────────────────────────────


def _check(state: SubscriptionState, proof: Proof) -> None:
    wake = state.wake
    # Nobody holds an offer yet, so there is no token for it.
    at_work = wake.phase is Phase.LEASED or (
        wake.phase is Phase.DUE and state.config.webhook is not None
    )
    current = (wake.generation, wake.generation, wake.wake_id)
    if not at_work or proof != current:
        raise Fenced


def _acknowledged(state: SubscriptionState, ack: Ack) -> Mark:
    known = state.links.get(ack.stream)
    if known is None or known.lineage is None:
        raise AckConflict(f"{ack.stream[:100]!r} is not a stream of this subscription")
    try:
        offset = parse_offset(ack.offset)
        if isinstance(offset, Anchor):
            raise InvalidAck("acknowledge the offset after the last message that was processed")
        position = known.lineage.locate(offset, known.tail)
    except InvalidOffset as error:
        raise InvalidAck(f"{ack.stream}: {error.message}") from None
    except UnknownOffset as error:
        raise AckConflict(f"{ack.stream}: {error.message}") from None
    if position < known.acked:
        raise AckConflict(f"{ack.stream}: a later offset was acknowledged already")
    return known.mark(acked=position)


def _is_progress(state: SubscriptionState, mark: Mark) -> bool:
    known = state.links.get(mark.path)
    return known is not None and known.stream_id == mark.stream_id and mark.acked > known.acked


def _finished(
    state: SubscriptionState, marks: Sequence[Mark], next_id: str, now_ms: int
) -> SubscriptionDecision[bool]:
    """End the wake. If something is still pending, begin the next one."""
    left = len(state.pending) - sum(
        mark.path in state.pending and state.pending[mark.path].tail <= mark.acked for mark in marks
    )
    changes: Changes = []
    if marks:
        changes.append(LinksMarked(state.record.id, tuple(_with_flags(state, marks))))
    if left > 0:
        changes.append(_next(state, next_id, now_ms))
    else:
        idle = Wake(state.wake.generation)
        changes.append(WakeChanged(state.record.id, idle))
    return Decision(left > 0, changes)


def _with_flags(state: SubscriptionState, marks: Iterable[Mark]) -> Iterable[Mark]:
    """A snapshot may be older than the current links."""
    return (mark._replace(explicit=state.links[mark.path].explicit) for mark in marks)


def _announcing(state: SubscriptionState, wake_id: str) -> bool:
    return state.wake.phase is Phase.DUE and state.wake.wake_id == wake_id


def _next(state: SubscriptionState, wake_id: str, now_ms: int) -> WakeChanged:
    wake = Wake(state.wake.generation + 1, Phase.DUE, wake_id, now_ms)
    return WakeChanged(state.record.id, wake)


def _leased(state: SubscriptionState, now_ms: int, holder: str | None = None) -> WakeChanged:
    until_ms = now_ms + state.config.lease_ttl_ms
    return _wake(state, phase=Phase.LEASED, until_ms=until_ms, attempts=0, holder=holder)


def _wake(state: SubscriptionState, **changes: object) -> WakeChanged:
    return WakeChanged(state.record.id, replace(state.wake, **changes))
