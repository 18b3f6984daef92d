"""The settings of a subscription, as a client sends them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from headwater.core.errors import InvalidPath
from headwater.core.json_bodies import decode_body
from headwater.core.limits import DESCRIPTION_CHARS_MAX
from headwater.core.paths import check_path
from headwater.core.patterns import InvalidPattern, parse_path_pattern
from headwater.core.subscriptions.errors import InvalidSubscription

LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = 600_000
LEASE_MS_DEFAULT: Final = 30_000
STREAMS_NAMED_MAX: Final = 1_000

WEBHOOK: Final = "webhook"


class Webhook(msgspec.Struct, frozen=True):
    url: str


class SubscriptionConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a subscription. Unknown fields are ignored."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: Annotated[tuple[str, ...], msgspec.Meta(max_length=STREAMS_NAMED_MAX)] = ()
    webhook: Webhook | None = None
    wake_stream: str | None = None
    lease_ttl_ms: Annotated[int, msgspec.Meta(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)] = LEASE_MS_DEFAULT
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_CHARS_MAX)] | None = None


def parse_config(body: bytes) -> SubscriptionConfig:
    """Settings in canonical form, so that a repeated request is recognised."""
    config = decode_body(body, SubscriptionConfig, InvalidSubscription)
    streams = tuple(sorted({stream_path(path) for path in config.streams}))
    pattern = stream_pattern(config.pattern) if config.pattern else None
    if not streams and pattern is None:
        raise InvalidSubscription("name streams, or give a pattern, or both")
    if config.type == WEBHOOK:
        if config.webhook is None:
            raise InvalidSubscription("a webhook subscription needs webhook.url")
        if config.wake_stream is not None:
            raise InvalidSubscription("wake_stream is for pull-wake subscriptions")
        return msgspec.structs.replace(config, streams=streams, pattern=pattern)
    if config.webhook is not None:
        raise InvalidSubscription("webhook is for webhook subscriptions")
    if not config.wake_stream:
        raise InvalidSubscription("a pull-wake subscription needs a wake_stream")
    wake_stream = stream_path(config.wake_stream)
    if wake_stream in streams:
        raise InvalidSubscription("a subscription cannot be woken by its own wake_stream")
    return msgspec.structs.replace(
        config, streams=streams, pattern=pattern, wake_stream=wake_stream
    )


def stream_path(text: str) -> str:
    """A stream as named in a body: its path, with or without slashes around it."""
    try:
        return check_path(text.strip("/"))
    except InvalidPath as error:
        raise InvalidSubscription(f"{text[:100]!r}: {error.message}") from None


def stream_pattern(text: str) -> str:
    """A pattern in canonical form, if it can cover any stream."""
    try:
        pattern = parse_path_pattern(text)
        check_path(pattern.text.replace(">", "**"))
    except (InvalidPattern, InvalidPath) as error:
        raise InvalidSubscription(f"pattern: {error.message}") from None
    return pattern.text
