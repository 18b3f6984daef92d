"""Checks on requests from web pages, before anything else. The rules are in `core.browsers`."""

from __future__ import annotations

from typing import Final

from headwater.core import content_types
from headwater.core.browsers import is_foreign, is_own_host
from headwater.core.errors import CrossSite, JsonRequired, UnknownHost
from headwater.core.limits import CONTENT_TYPE_CHARS_MAX
from headwater.http.access.rules import Need
from headwater.http.headers import CONTENT_TYPE
from headwater.http.messages import Request
from headwater.http.routes.matching import Match

_HOST: Final = b"host"
_ORIGIN: Final = b"origin"
_SITE: Final = b"sec-fetch-site"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HOSTS_KNOWN_MAX: Final = 1_000


class Browsers:
    def __init__(self, origins: frozenset[str] | None, hosts: frozenset[str] | None) -> None:
        """None allows all."""
        self._origins = origins
        self._hosts = hosts
        # Clients send the same few values over and over.
        self._known_hosts: set[bytes] = set()

    def check(self, request: Request, match: Match) -> None:
        headers = request.headers
        if self._hosts is not None:
            host = headers.get(_HOST)
            if host is not None and host not in self._known_hosts:
                self._check_host(host, self._hosts)
        if is_from_page(request):
            self._check_page(request, match)

    def _check_host(self, host: bytes, names: frozenset[str]) -> None:
        if not is_own_host(host.decode("latin-1"), names):
            raise UnknownHost(host.decode("ascii", "replace"))
        if len(self._known_hosts) < _HOSTS_KNOWN_MAX:
            self._known_hosts.add(host)

    def _check_page(self, request: Request, match: Match) -> None:
        if self._origins is not None and _changes_something(request, match):
            origin, site = _text(request, _ORIGIN), _text(request, _SITE)
            if is_foreign(origin, site, _text(request, _HOST) or "", self._origins):
                raise CrossSite(origin)
        route = match.resource.routes.get(request.method)
        if request.body and route is not None and route.takes_only_json:
            # No longer than a valid one can be: the result is cached.
            content_type = (_text(request, CONTENT_TYPE) or "")[:CONTENT_TYPE_CHARS_MAX]
            if not content_types.is_json(content_type):
                raise JsonRequired


def is_from_page(request: Request) -> bool:
    return _ORIGIN in request.headers or _SITE in request.headers


def _changes_something(request: Request, match: Match) -> bool:
    if request.method not in _SAFE:
        return True
    # A push member takes messages away from other members.
    return match.need(request.method) is Need.READ_OR_GROUP and b"live" in request.query


def _text(request: Request, name: bytes) -> str | None:
    value = request.headers.get(name)
    return None if value is None else value.decode("latin-1")
