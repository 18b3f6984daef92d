"""What goes over the wire for live queries: requests and answers as values. No IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from headwater.client.live_keys import Template
from headwater.client.protocol.streams import Request, Response, decoded
from headwater.core.content_types import JSON
from headwater.core.live.guard import Mode
from headwater.core.live.interest import WaitKind
from headwater.core.live.profile import (
    API_VERSION,
    Generic,
    MemorySettings,
    Profile,
    StateProtocol,
    TemplateSettings,
    TouchSettings,
)
from headwater.core.live.templates import Denial

__all__ = ["Generic", "MemorySettings", "StateProtocol", "TemplateSettings", "TouchSettings"]

NOW: Final = "now"
"""The cursor of the present moment, whenever the server reads the request."""

WAIT_MAX_S: Final = 120.0
_JSON_HEADERS: Final = {"Content-Type": JSON}
_NAME: Final = "x-request-id"


class LiveMeta(msgspec.Struct, frozen=True, rename="camel"):
    """What the server says about a live stream.

    Attributes:
        cursor: the present moment, to wait from.
        epoch: the first part of the cursor: new whenever the journal starts over.
        generation: its second part, which counts buckets.
        settled: whether the cursor is past everything that was appended.
        touch_mode: how precise the server is at present.
        bucket_ms: the longest that a change may wait for others to share its bucket.
        coalesce_ms: how long it waits at present.
        pending_keys: keys in the open bucket.
        overflow_buckets: buckets that had too many keys, so that they woke everybody.
        lag_source_offsets: messages that are appended and not looked at yet.
        bucket_max_source_offset_seq: messages of the stream before the cursor.
        active_templates: templates that are followed.
        hot_templates: those of them that somebody waits with.
        hot_fine_keys: keys that somebody waits on.
        active_waiters: waits under way.
        fine_waiters_active: those on fine keys.
        coarse_waiters_active: those on tables.
        broad_fine_waiters_active: those with so many keys that they are looked through.
        unplaced_waiters_active: those with keys of unknown origin, which every change wakes.
        memory_bytes: what the journal's memory of the past takes, about.

    The totals count since the epoch began.
    """

    cursor: str
    epoch: str
    generation: int
    settled: bool
    touch_mode: Mode
    bucket_ms: int
    coalesce_ms: float
    pending_keys: int
    overflow_buckets: int
    lag_source_offsets: int
    bucket_max_source_offset_seq: str
    active_templates: int
    hot_templates: int
    hot_fine_keys: int
    active_waiters: int
    fine_waiters_active: int
    coarse_waiters_active: int
    broad_fine_waiters_active: int
    unplaced_waiters_active: int
    memory_bytes: int
    total_records: int
    total_changes: int
    total_fine_touches: int
    total_fallback_changes: int
    total_flushes: int
    total_waits: int
    total_touched: int
    total_timeouts: int
    total_stale: int
    total_activations: int
    total_retirements: int


class WaitResult(msgspec.Struct, frozen=True, rename="camel"):
    """How a wait ended.

    Attributes:
        cursor: where to wait from next.
        touched: something happened: run the query again.
        stale: the cursor was from before a restart or reset: run the query again.
        effective_wait_kind: how the wait was served. For people, not for programs.
        bucket_max_source_offset_seq: messages of the stream before the cursor.
        flush_at_ms: when the bucket was closed, in milliseconds since 1970.
        bucket_start_ms: when it was opened, about.
    """

    cursor: str
    effective_wait_kind: WaitKind
    bucket_max_source_offset_seq: str
    flush_at_ms: int
    bucket_start_ms: int
    touched: bool = False
    stale: bool = False


class ActivatedTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """A template that is followed.

    Attributes:
        template_id: its id.
        state: always `active`.
        active_from_touch_offset: the cursor from which on its keys are touched.
    """

    template_id: str
    state: Literal["active"]
    active_from_touch_offset: str


class DeniedTemplate(msgspec.Struct, frozen=True):
    """A template that is not followed.

    Attributes:
        index: its place in the request.
        reason: `invalid`, `encoding_conflict`, `rate_limited` or `cap`.
    """

    index: int
    reason: Denial


class TemplateLimits(msgspec.Struct, frozen=True, rename="camel"):
    """How many templates the stream follows."""

    max_active_templates_per_entity: int
    max_active_templates_per_stream: int
    activation_rate_limit_per_minute: int


class Activation(msgspec.Struct, frozen=True):
    """What came of asking for templates."""

    activated: tuple[ActivatedTemplate, ...]
    denied: tuple[DeniedTemplate, ...]
    limits: TemplateLimits

    def covers(self, template: Template) -> bool:
        """Whether a template is among the activated ones."""
        return template.id in {each.template_id for each in self.activated}


# --- Requests ------------------------------------------------------------------------------------


def profile_url(stream_url: str) -> str:
    return f"{stream_url}/_profile"


def profile_request(stream_url: str, profile: Profile | Mapping[str, Any]) -> Request:
    body = msgspec.json.encode({"apiVersion": API_VERSION, "profile": profile})
    return Request("POST", profile_url(stream_url), headers=_JSON_HEADERS, body=body)


def meta_request(stream_url: str, *, settle: bool = False, timeout_s: float = 30.0) -> Request:
    params = {"settle": "flush", "timeoutMs": str(_wait_ms(timeout_s))} if settle else {}
    return Request(
        "GET",
        f"{stream_url}/touch/meta",
        params=params,
        patience="long-poll" if settle else "answer",
    )


def activate_request(
    stream_url: str, templates: Iterable[Template], *, ttl_s: float | None = None
) -> Request:
    fields = {"templates": [template.wire() for template in templates], **_ttl(ttl_s)}
    return _post(f"{stream_url}/touch/templates/activate", fields)


def wait_request(
    stream_url: str,
    interest: Mapping[str, Any],
    *,
    cursor: str,
    timeout_s: float,
    ttl_s: float | None = None,
    name: str | None = None,
) -> Request:
    """Wait for a touch. `interest` is what to wait on, as `Keyset.wire` has it.

    The answer repeats the name, if the server is Headwater and nobody on the way changes it.
    """
    fields = {"cursor": cursor, "timeoutMs": _wait_ms(timeout_s), **interest, **_ttl(ttl_s)}
    request = _post(f"{stream_url}/touch/wait", fields, long_poll=True)
    return request if name is None else replace(request, headers={**_JSON_HEADERS, _NAME: name})


def is_answer_to(name: str, response: Response) -> bool:
    """Whether an answer is certainly to a request of that name."""
    return response.headers.get(_NAME) == name


def _post(url: str, fields: Mapping[str, Any], *, long_poll: bool = False) -> Request:
    return Request(
        "POST",
        url,
        headers=_JSON_HEADERS,
        body=msgspec.json.encode(fields),
        patience="long-poll" if long_poll else "answer",
    )


def _wait_ms(seconds: float) -> int:
    if not 0 <= seconds <= WAIT_MAX_S:
        raise ValueError(f"a wait lasts between 0 and {WAIT_MAX_S:g} seconds")
    return round(seconds * 1000)


def _ttl(ttl_s: float | None) -> dict[str, int]:
    return {} if ttl_s is None else {"inactivityTtlMs": max(1, round(ttl_s * 1000))}


# --- Answers -------------------------------------------------------------------------------------


class _WireProfile(msgspec.Struct):
    profile: Generic | StateProtocol


def profile(response: Response) -> Profile:
    return decoded(response, _WireProfile).profile


def live_meta(response: Response) -> LiveMeta:
    return decoded(response, LiveMeta)


def activation(response: Response) -> Activation:
    return decoded(response, Activation)


def wait_result(response: Response) -> WaitResult:
    return decoded(response, WaitResult)
