"""Which permission each resource needs. A resource that is not in the table needs `admin`.

A rule sees the request before its body is looked at. Where a body or a header names further
streams (the source of a fork, a dead-letter stream, the parts of a transaction), the resource
asks for those with `Request.demand` before it does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.core.access import Caller, Permission
from headwater.core.paths import CONTROL_ROOT, GROUPS, PROFILE, SNAPSHOTS, TOUCH
from headwater.http import places
from headwater.http.messages import Request
from headwater.http.places import Place
from headwater.http.queries import query_of

Rule = Callable[[Request, Place, Caller], None]

_READS: Final = frozenset({"GET", "HEAD"})
# A webhook and a worker prove themselves by the token that they were woken with.
_OWN_TOKEN: Final = frozenset({"callback", "ack", "release"})


def _reads(request: Request, place: Place, caller: Caller) -> None:
    caller.demand(Permission.READ, place.path)


def _stream(request: Request, place: Place, caller: Caller) -> None:
    if request.method == "HEAD" and caller.grants.allow(Permission.WRITE, place.path):
        # Whoever writes has to know the type of the stream, and learns its end anyway.
        return
    needed = Permission.READ if request.method in _READS else Permission.WRITE
    caller.demand(needed, place.path)


def _groups(request: Request, place: Place, caller: Caller) -> None:
    """To look at a group is to read; to be pushed its messages is to use it."""
    if request.method in _READS and "live" not in query_of(request):
        caller.demand(Permission.READ, place.path)
    else:
        caller.demand_group(place.path, place.rest[0] if place.rest else "")


def _anyone(request: Request, place: Place, caller: Caller) -> None:
    """Whoever is known. What the answer holds depends on who it is."""


def _administers(request: Request, place: Place, caller: Caller) -> None:
    caller.demand_server()


def _pipelines(request: Request, place: Place, caller: Caller) -> None:
    """Reports name streams that not everyone may know of. To report, any pipeline will do."""
    if request.method in _READS:
        caller.demand_server()


RULES: Final[dict[str, Rule]] = {
    places.STREAM: _stream,
    "_details": _reads,
    "_position": _reads,
    "_segments": _reads,
    "_bulk": _reads,
    GROUPS: _groups,
    PROFILE: _stream,
    SNAPSHOTS: _stream,
    TOUCH: _reads,
    CONTROL_ROOT: _administers,
    places.LIST: _anyone,
    places.TRANSACTION: _anyone,
    places.SIGN: _anyone,
    places.METRICS: _administers,
    places.PIPELINES: _pipelines,
}

PUBLIC: Final = frozenset(
    {places.INDEX, places.HEALTH, places.READY, places.OPENAPI, places.CONSOLE}
)
"""Open to everyone: they tell nothing about streams."""


def is_public(request: Request, place: Place) -> bool:
    if place.kind in PUBLIC:
        return True
    if place.kind != CONTROL_ROOT:
        return False
    match request.method, place.rest:
        case "GET" | "HEAD", ("jwks.json",):
            return True
        case "POST", ("subscriptions", _, action):
            return action in _OWN_TOKEN
    return False


def permit(request: Request, place: Place, caller: Caller) -> None:
    """Raise `Forbidden` if the caller may not."""
    RULES.get(place.kind, _administers)(request, place, caller)
