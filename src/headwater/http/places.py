"""Places: what a request is for, found once.

Which resource answers and which permission that needs both follow from the *kind* of the place.
So a resource cannot be reached in a way that its permission was not asked for. The kinds:

- `stream`, the stream at a path;
- the name of a control resource of a stream (`_details`, `_groups`, …), and `touch`, everything of
  live queries but their profile;
- `__ds`, everything below that reserved name;
- `/console/`, the console and its parts;
- for everything else the whole target, `/healthz`, whether there is such a resource or not."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from headwater.core.paths import CONTROL_NAMES, CONTROL_ROOT, GROUPS, SNAPSHOTS, TOUCH, split_touch
from headwater.http.targets import (
    STREAM_ROOT,
    SUBSCRIPTIONS_ROOT,
    decode_path,
    decode_segments,
    origin_form,
)

STREAM: Final = "stream"
INDEX: Final = "/"
HEALTH: Final = "/healthz"
READY: Final = "/readyz"
LIST: Final = "/v1/streams"
TRANSACTION: Final = "/v1/transaction"
SIGN: Final = "/v1/presign"
PIPELINES: Final = "/v1/pipelines"
METRICS: Final = "/metrics"
OPENAPI: Final = "/openapi.json"
CONSOLE: Final = "/console/"
_CONSOLE: Final = CONSOLE.encode()
_STREAM_ROUTE: Final = "/v1/stream/{path}"


class Place(msgspec.Struct, frozen=True):
    kind: str
    path: str = ""
    """Of the stream that it belongs to. As it was sent: it may be none that a stream can have."""
    rest: tuple[str, ...] = ()
    """What follows the name of the resource."""


def route_of(kind: str) -> str:
    """A kind as a template of targets, for figures, logs and traces."""
    if kind == STREAM:
        return _STREAM_ROUTE
    if kind == CONTROL_ROOT:
        return f"{STREAM_ROOT.decode()}{CONTROL_ROOT}"
    return kind if kind.startswith("/") else f"{_STREAM_ROUTE}/{kind}"


def locate(method: str, target: bytes) -> Place:
    target = target if target[:1] == b"/" else origin_form(target)
    if not target.startswith(STREAM_ROOT):
        if target.startswith(_CONSOLE):
            return Place(CONSOLE, "", (target[len(_CONSOLE) :].decode("latin-1"),))
        return Place(target.decode("latin-1"))
    if target.startswith(SUBSCRIPTIONS_ROOT):
        return Place(CONTROL_ROOT, "", tuple(decode_segments(target[len(SUBSCRIPTIONS_ROOT) :])))
    path = decode_path(target[len(STREAM_ROOT) :])
    if "/_" in path or path.startswith(CONTROL_ROOT):
        place = _control(method, path)
        if place is not None:
            return place
    if "/touch/" in path:
        touched = split_touch(path)
        if touched is not None:
            return Place(TOUCH, touched[0], (touched[1],))
    return Place(STREAM, path)


@lru_cache(maxsize=1024)
def _control(method: str, path: str) -> Place | None:
    """A control resource of a stream. Members of a group ask for the same again and again."""
    segments = path.split("/")
    if segments[0] == CONTROL_ROOT:
        return Place(CONTROL_ROOT, "", tuple(segments[1:]))
    if GROUPS in segments[1:]:
        at = len(segments) - 1 - segments[::-1].index(GROUPS)
        return Place(GROUPS, "/".join(segments[:at]), tuple(segments[at + 1 :]))
    if len(segments) > 2 and segments[-2] == SNAPSHOTS:
        return Place(SNAPSHOTS, "/".join(segments[:-2]), (segments[-1],))
    # Nothing is put there: that would be a stream with a name that is reserved.
    if len(segments) > 1 and segments[-1] in CONTROL_NAMES and method != "PUT":
        return Place(segments[-1], "/".join(segments[:-1]))
    return None
