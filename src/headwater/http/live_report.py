"""What live resources answer, as plain values."""

from __future__ import annotations

import msgspec

from headwater.core.live.templates import Activation, template_json
from headwater.service.live.metrics import camel
from headwater.service.live.stream import LiveStream
from headwater.service.live.waits import WaitResult


def wait_report(result: WaitResult, kind: str) -> dict[str, object]:
    common: dict[str, object] = {
        "cursor": result.cursor,
        "effectiveWaitKind": kind,
        "bucketMaxSourceOffsetSeq": str(result.source_seq),
        "flushAtMs": result.flushed_at_ms,
        "bucketStartMs": result.bucket_start_ms,
    }
    if result.outcome != "stale":
        return {"touched": result.outcome == "touched", **common}
    epoch, _, generation = result.cursor.partition(":")
    return {
        "stale": True,
        **common,
        "epoch": epoch,
        "generation": int(generation),
        "error": {
            "code": "stale",
            "message": "the cursor is from before a restart or reset; run the query again and "
            "go on from this cursor",
        },
    }


def activation_report(stream: LiveStream, outcome: Activation) -> dict[str, object]:
    settings, journal = stream.settings.templates, stream.state.journal
    return {
        "activated": [
            template_json(template, f"{journal.epoch}:{template.active_from}")
            for template in outcome.activated
        ],
        "denied": [{"index": index, "reason": reason} for index, reason in outcome.denied],
        "limits": {
            "maxActiveTemplatesPerEntity": settings.max_active_templates_per_entity,
            "maxActiveTemplatesPerStream": settings.max_active_templates_per_stream,
            "activationRateLimitPerMinute": settings.activation_rate_limit_per_minute,
        },
    }


def meta_report(stream: LiveStream) -> dict[str, object]:
    """Everything there is to know about a live stream, flat."""
    state = stream.state
    journal, book = state.journal, state.book
    waiters, broad, unplaced = journal.counts
    fine = stream.fine_waiters
    totals = msgspec.structs.asdict(state.totals)
    return {
        "cursor": journal.cursor,
        "epoch": journal.epoch,
        "generation": journal.generation,
        "settled": journal.settled and stream.lag == 0,
        "touchMode": state.mode,
        "bucketMs": stream.settings.memory.bucket_ms,
        "coalesceMs": round(stream.coalesce_ms, 3),
        "pendingKeys": len(journal.pending),
        "overflowBuckets": journal.overflow_buckets,
        "lagSourceOffsets": stream.lag,
        "bucketMaxSourceOffsetSeq": str(journal.flushed_seq),
        "activeTemplates": len(book.active),
        "hotTemplates": sum(template.waiters > 0 for template in book),
        "hotFineKeys": journal.awaited_keys,
        "activeWaiters": waiters,
        "fineWaitersActive": fine,
        "coarseWaitersActive": waiters - fine,
        "broadFineWaitersActive": broad,
        "unplacedWaitersActive": unplaced,
        "memoryBytes": journal.history.size_bytes,
        **{camel(f"total_{name}"): value for name, value in totals.items()},
    }
