"""Live queries over HTTP: …/_profile and …/touch/meta, touch/wait, touch/templates/activate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final, get_args

import msgspec

from headwater.core.errors import InvalidBody, InvalidQuery, StreamError
from headwater.core.json_bodies import decode_body
from headwater.core.live.interest import Interest, InterestMode, WaitKind
from headwater.core.live.keys import parse_key, to_hex
from headwater.core.live.profile import parse_profile, profile_json
from headwater.core.live.templates import (
    TEMPLATES_PER_CALL_MAX,
    Activation,
    Template,
    TemplateSpec,
    parse_spec,
    template_json,
)
from headwater.http.answers import JSON_HEADERS, encoded_json, json_answer
from headwater.http.messages import Answer, Deferred, Request, Response
from headwater.http.queries import flag_in, number_between, query_of
from headwater.service.live.metrics import camel
from headwater.service.live.registry import Live
from headwater.service.live.stream import LiveStream
from headwater.service.live.waits import WaitResult

WAIT_MS_MAX: Final = 120_000
WAIT_MS_DEFAULT: Final = 30_000
KEYS_MAX: Final = 1024
EXACT_KEYS_MAX: Final = 16
_KEY_CHARS_MAX: Final = 256

Timeout = Annotated[int, msgspec.Meta(ge=0, le=WAIT_MS_MAX)]
Ttl = Annotated[int, msgspec.Meta(ge=1, le=365 * 24 * 3_600_000)]
Key = Annotated[str, msgspec.Meta(max_length=_KEY_CHARS_MAX)]
KeyId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Templates = Annotated[list[Any], msgspec.Meta(max_length=TEMPLATES_PER_CALL_MAX)]


class WaitBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    cursor: str
    timeout_ms: Timeout = WAIT_MS_DEFAULT
    keys: Annotated[list[Key], msgspec.Meta(max_length=KEYS_MAX)] = []
    key_ids: Annotated[list[KeyId], msgspec.Meta(max_length=KEYS_MAX)] = []
    interest_mode: InterestMode = "fine"
    exact: bool = False
    template_ids_used: Annotated[list[Key], msgspec.Meta(max_length=KEYS_MAX)] = []
    declare_templates: Templates = []
    inactivity_ttl_ms: Ttl | None = None


class ActivateBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    templates: Templates
    inactivity_ttl_ms: Ttl | None = None


class LiveResource:
    def __init__(self, live: Live) -> None:
        self._live = live

    async def profile(self, request: Request, path: str) -> Answer:
        return Response(200, list(JSON_HEADERS), profile_json(await self._live.profile(path)))

    async def set_profile(self, request: Request, path: str) -> Answer:
        profile = await self._live.set_profile(path, parse_profile(request.body))
        return Response(200, list(JSON_HEADERS), profile_json(profile))

    async def meta(self, request: Request, path: str) -> Answer:
        query = query_of(request)
        timeout_ms = number_between(query, "timeoutMs", 0, WAIT_MS_MAX, default=WAIT_MS_DEFAULT)
        if query.get("settle", "flush") != "flush":
            raise InvalidQuery("settle can only be flush")
        stream = await self._live.of(path)
        if "settle" in query:
            await stream.settle(timeout_ms)
        report = _meta_report(stream)
        if flag_in(query, "templates"):
            report["templates"] = [_template_report(one) for one in stream.state.book]
        return json_answer(report)

    async def activate(self, request: Request, path: str) -> Answer:
        body = decode_body(request.body, ActivateBody)
        stream = await self._live.of(path)
        outcome = await stream.activate(_specs(body.templates), body.inactivity_ttl_ms)
        return json_answer(_activation_report(stream, outcome))

    def wait(self, request: Request, path: str) -> Answer | Deferred | Awaitable[Answer]:
        body = decode_body(request.body, WaitBody)
        interest = _interest(body)
        stream = None if body.declare_templates else self._live.ready(path)
        if stream is None:
            return self._wait_cold(request, path, body, interest)
        return _wait_on(stream, request, body, interest)

    async def _wait_cold(
        self, request: Request, path: str, body: WaitBody, interest: Interest
    ) -> Answer:
        stream = await self._live.of(path)
        if body.declare_templates:
            specs = _specs(body.declare_templates)
            await stream.activate(specs, body.inactivity_ttl_ms)
            stream = await self._live.of(path)
            interest = interest.with_tables_of(stream.state.book.not_followed(specs))
        answer = _wait_on(stream, request, body, interest)
        return await answer.resolve() if isinstance(answer, Deferred) else answer


def _wait_on(
    stream: LiveStream, request: Request, body: WaitBody, interest: Interest
) -> Response | Deferred:
    wait = stream.wait(interest, body.cursor, body.timeout_ms)
    # The answer may take long, and very many may wait. Now that it is certain that they wait here,
    # and not on another node, their bodies can be dropped.
    request.body = b""
    render = _RENDERERS[interest.kind(stream.state.mode)]
    if isinstance(wait, WaitResult):
        return render(wait)
    try:
        request.wait(partial(stream.leave, wait))
    except StreamError:
        stream.leave(wait)
        raise
    return Deferred(wait.future, render)


def _interest(body: WaitBody) -> Interest:
    if not body.keys and not body.key_ids:
        raise InvalidBody("a wait needs keys or keyIds")
    if body.exact and body.interest_mode == "coarse":
        raise InvalidBody("exact waits for keys and coarse for tables; send one of them")
    if body.exact:
        literal = all(parse_key(key) is not None for key in body.keys)
        if not 1 <= len(body.keys) <= EXACT_KEYS_MAX or not literal:
            raise InvalidBody(f"exact needs 1 to {EXACT_KEYS_MAX} keys of 16 hex digits")
    templates: list[int] = []
    for index, text in enumerate(body.template_ids_used):
        template = parse_key(text)
        if template is None:
            raise InvalidBody(f"templateIdsUsed[{index}] is not a template id of 16 hex digits")
        templates.append(template)
    return Interest.of(body.keys, body.key_ids, templates, body.interest_mode)


def _specs(templates: list[Any]) -> list[TemplateSpec | None]:
    return [
        parse_spec(template.get("entity"), template.get("fields"))
        if isinstance(template, dict)
        else None
        for template in templates
    ]


def _waited(kind: WaitKind, result: WaitResult) -> Response:
    """Encoded once for all waiters that are woken together."""
    body = result.encoded.get(kind)
    if body is None:
        body = result.encoded[kind] = msgspec.json.encode(_wait_report(result, kind))
    return encoded_json(body)


_RENDERERS: Final[dict[WaitKind, Callable[[WaitResult], Response]]] = {
    kind: partial(_waited, kind) for kind in get_args(WaitKind)
}


# ── Reports ──────────────────────────────────────────────────────────────────────────────────


def _wait_report(result: WaitResult, kind: str) -> dict[str, object]:
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
            "continue from this cursor",
        },
    }


def _activation_report(stream: LiveStream, outcome: Activation) -> dict[str, object]:
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


def _template_report(template: Template) -> dict[str, object]:
    spec = template.spec
    named = zip(spec.fields, spec.encodings, strict=True)
    return {
        "templateId": to_hex(template.id),
        "entity": spec.entity,
        "fields": [{"name": name, "encoding": encoding} for name, encoding in named],
        "waiters": template.waiters,
        "lastSeenMs": template.last_seen_ms,
        "inactivityTtlMs": template.ttl_ms,
    }


def _meta_report(stream: LiveStream) -> dict[str, object]:
    """Everything known about a live stream, flat."""
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
