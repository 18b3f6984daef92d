"""Live queries: the profile of a stream, and waiting for what it touches."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.resources.live import WAIT_MS_DEFAULT, WAIT_MS_MAX
from headwater.http.routes.route import (
    FLAG,
    JSON_TYPE,
    STREAM,
    Answer,
    Parameter,
    Route,
    ref,
    whole,
    with_head,
)
from headwater.http.routes.streams import STREAM_ERRORS

PROFILE: Final = f"{STREAM}/_profile"
TOUCH: Final = f"{STREAM}/touch"

# On a stream whose profile has no live queries, these resources do not exist.
_LIVE_ERRORS: Final = (*STREAM_ERRORS, "not_found", "too_busy")
_PROFILED: Final = {200: Answer("The whole profile.", content={JSON_TYPE: ref("ProfileEnvelope")})}

_GET_PROFILE = Route(
    "GET",
    PROFILE,
    "What a stream is used for.",
    lambda on: on.live.profile,
    _PROFILED,
    needs=Need.READ,
    errors=STREAM_ERRORS,
)
_SET_PROFILE = Route(
    "POST",
    PROFILE,
    "Say what a stream is used for.",
    lambda on: on.live.set_profile,
    _PROFILED,
    needs=Need.WRITE,
    errors=(*STREAM_ERRORS, "invalid_body", "profile_conflict", "too_busy"),
    body={JSON_TYPE: ref("ProfileEnvelope")},
)
_META = Route(
    "GET",
    f"{TOUCH}/meta",
    "How the live side of a stream is doing.",
    lambda on: on.live.meta,
    {200: Answer("Its state and its totals.", content={JSON_TYPE: ref("LiveMeta")})},
    needs=Need.READ,
    errors=(*_LIVE_ERRORS, "invalid_query"),
    query=(
        Parameter(
            "settle",
            "Answer when everything that is committed now has been dealt with.",
            {"type": "string", "enum": ["flush"]},
        ),
        Parameter(
            "timeoutMs",
            "How long that may take.",
            whole(0, WAIT_MS_MAX, default=WAIT_MS_DEFAULT),
        ),
        Parameter("templates", "`true` adds the templates that are followed.", FLAG),
    ),
)
_WAIT = Route(
    "POST",
    f"{TOUCH}/wait",
    "Wait until one of some keys is touched.",
    lambda on: on.live.wait,
    {200: Answer("Touched, time is up, or the cursor is stale.", content={JSON_TYPE: ref("Wait")})},
    needs=Need.READ,
    errors=(*_LIVE_ERRORS, "invalid_body"),
    body={JSON_TYPE: ref("WaitBody")},
    waits=True,
)
_ACTIVATE = Route(
    "POST",
    f"{TOUCH}/templates/activate",
    "Have the rows of some query shapes followed one by one.",
    lambda on: on.live.activate,
    {200: Answer("Which ones are.", content={JSON_TYPE: ref("Activation")})},
    needs=Need.READ,
    errors=(*_LIVE_ERRORS, "invalid_body"),
    body={JSON_TYPE: ref("ActivateBody")},
)

ROUTES: Final = (*with_head(_GET_PROFILE), _SET_PROFILE, _META, _WAIT, _ACTIVATE)
