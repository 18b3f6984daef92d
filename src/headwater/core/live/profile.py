"""Profiles: what a stream is used for, and how live queries on it are configured.

A stream is `generic` by default. With `state-protocol` its messages must be change records, and
with `touch.enabled` queries can wait on it. All settings of the wire format are here; those about
"hot" keys are accepted and stored for compatibility but have no effect, because keys that nobody
waits on yet are followed like all others.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from headwater.core.content_types import is_json
from headwater.core.errors import InvalidBody, ProfileConflict
from headwater.core.json_bodies import decode_body
from headwater.core.live.records import MissingBeforePolicy

API_VERSION: Final = "durable.streams/profile/v1"

_Interval = Annotated[int, Meta(ge=1, le=60_000)]
_Span = Annotated[int, Meta(ge=1, le=365 * 24 * 3_600_000)]
_Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
_Cap = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Settings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class MemorySettings(_Settings, frozen=True):
    """How much of what happened is remembered, and how finely."""

    bucket_ms: _Interval = 100
    filter_pow2: Annotated[int, Meta(ge=4, le=26)] = 22
    k: Annotated[int, Meta(ge=1, le=16)] = 4
    pending_max_keys: _Cap = 100_000
    key_index_max_keys: Annotated[int, Meta(ge=1, le=1024)] = 32
    hot_key_ttl_ms: _Span = 10_000
    hot_template_ttl_ms: _Span = 10_000
    hot_max_keys: _Cap = 1_000_000
    hot_max_templates: _Cap = 4096


class TemplateSettings(_Settings, frozen=True):
    """How many query shapes are followed, and for how long."""

    default_inactivity_ttl_ms: _Span = 3_600_000
    last_seen_persist_interval_ms: _Span = 300_000
    gc_interval_ms: _Span = 60_000
    max_active_templates_per_entity: Annotated[int, Meta(ge=1, le=4096)] = 256
    max_active_templates_per_stream: Annotated[int, Meta(ge=1, le=65_536)] = 2048
    activation_rate_limit_per_minute: Annotated[int, Meta(ge=0, le=1_000_000)] = 100


class TouchSettings(_Settings, frozen=True):
    """Whether queries can wait on a stream, and how precisely they are told."""

    enabled: bool = False
    coarse_interval_ms: _Interval = 100
    touch_coalesce_window_ms: _Interval = 100
    lag_degrade_fine_touches_at_source_offsets: _Count = 5_000
    lag_recover_fine_touches_at_source_offsets: _Count = 1_000
    fine_touch_budget_per_batch: _Count = 2_000
    fine_tokens_per_second: _Count = 200_000
    fine_burst_tokens: _Count = 400_000
    lag_reserved_fine_touch_budget_per_batch: _Count = 200
    on_missing_before: MissingBeforePolicy = "coarse"
    memory: MemorySettings = MemorySettings()
    templates: TemplateSettings = TemplateSettings()

    @property
    def flush_within_ms(self) -> int:
        """The longest that a touch may be held back to be flushed with others."""
        return min(self.memory.bucket_ms, self.touch_coalesce_window_ms)


class Generic(
    Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="generic", rename="camel"
):
    """The profile of a stream that holds anything."""


class StateProtocol(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="state-protocol",
    rename="camel",
):
    """The profile of a stream that holds change records."""

    touch: TouchSettings = TouchSettings()


Profile = Generic | StateProtocol


def kind_of(profile: Profile) -> str:
    return str(profile.__struct_config__.tag)


GENERIC: Final = Generic()


class ProfileEnvelope(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A profile as it is sent."""

    profile: Profile
    api_version: str = API_VERSION


_profile = msgspec.json.Decoder(Profile)


def parse_profile(body: bytes) -> Profile:
    """The requested profile."""
    envelope = decode_body(body, ProfileEnvelope)
    if envelope.api_version != API_VERSION:
        raise InvalidBody(f"apiVersion must be {API_VERSION}")
    profile = envelope.profile
    if isinstance(profile, StateProtocol):
        touch = profile.touch
        recover = touch.lag_recover_fine_touches_at_source_offsets
        if recover > touch.lag_degrade_fine_touches_at_source_offsets:
            raise InvalidBody(
                "lagRecoverFineTouchesAtSourceOffsets cannot be above "
                "lagDegradeFineTouchesAtSourceOffsets"
            )
    return profile


def check_profile(profile: Profile, content_type: str) -> None:
    if isinstance(profile, StateProtocol) and not is_json(content_type):
        raise ProfileConflict(content_type)


def profile_json(profile: Profile) -> bytes:
    """The whole effective profile, as returned to clients."""
    return msgspec.json.encode(ProfileEnvelope(profile))


def pack_profile(profile: Profile) -> str:
    """The stored form."""
    return msgspec.json.encode(profile).decode()


def unpack_profile(text: str) -> Profile:
    profile: Profile = _profile.decode(text)
    return profile


def touch_settings(profile: Profile) -> TouchSettings | None:
    """How queries wait on the stream; None if they cannot."""
    if isinstance(profile, StateProtocol) and profile.touch.enabled:
        return profile.touch
    return None
