"""Which addresses the server fetches durable responses from.

A list of patterns, separated by commas or spaces. An address has to match one of them; an empty
list allows none. A pattern is `scheme://host[:port][/path]`:

- the scheme is `https` or `http`, and must be the same;
- the host is a name or an address, or `*.` and a name for everything below that name, but not the
  name itself;
- without a port it is the scheme's default; `:*` is any;
- in the path, `*` matches any characters, including slashes. Without a path, every path matches.
  The query of an address is ignored. A path with `.` or `..` as a segment, however encoded, never
  matches: the upstream could resolve it to another path.

The host is looked up and checked as in `core.targets`: it must resolve to the public internet.
Private addresses must be listed: either the pattern's host is the address itself
(`http://10.0.0.7:8080`), or `localhost`, which stands for this machine; or a network is listed that
names may resolve to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import unquote

from headwater.core.responses.errors import UpstreamNotAllowed
from headwater.core.targets import (
    PORTS,
    Address,
    Network,
    Target,
    TargetRefused,
    is_host,
    is_public,
    parse_url,
)

_PATTERN: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[^/:\[\]?#@]+)(?::(?P<port>\d{1,5}|\*))?"
    r"(?P<path>/[^?#]*)?",
    re.IGNORECASE | re.ASCII,
)
_BELOW: Final = "*."
_SEPARATORS: Final = re.compile(r"[,\s]+")
_LOOPBACK: Final = tuple(ip_network(text) for text in ("127.0.0.0/8", "::1/128"))

Allowed = Callable[[Address], bool]


class AddressPattern(NamedTuple):
    scheme: str
    host: str
    port: int | None
    """None for any."""
    path: tuple[str, ...]
    """The parts between the asterisks."""
    names: tuple[Network, ...] = ()
    """The private addresses it names."""

    def fits(self, target: Target) -> bool:
        return (
            self.scheme == target.scheme
            and (self.port is None or self.port == target.port)
            and self._fits_host(target.host)
            and _fits_path(self.path, target.path)
        )

    def _fits_host(self, host: str) -> bool:
        if self.host.startswith(_BELOW):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return host == self.host


def parse_patterns(setting: str) -> tuple[AddressPattern, ...]:
    return tuple(_parse_pattern(text) for text in _SEPARATORS.split(setting) if text)


def _parse_pattern(text: str) -> AddressPattern:
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a pattern of addresses; write https://api.example.com/v1/*, and "
            "separate several with commas"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower().strip("[]").rstrip(".")
    if not is_host(host.removeprefix(_BELOW)):
        raise ValueError(f"{text!r} names no host; an asterisk can only come first, as in *.a.com")
    port = None if found["port"] == "*" else int(found["port"] or PORTS[scheme])
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has a port that does not exist")
    path = tuple((found["path"] or "*").split("*"))
    return AddressPattern(scheme, host, port, path, _named_by(host))


def parse_networks(setting: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in _SEPARATORS.split(setting) if text)
    except ValueError as error:
        raise ValueError(f"{error}; write networks such as 10.0.0.0/8") from None


def parse_upstream_url(url: str) -> Target:
    try:
        return parse_url(url)
    except TargetRefused as error:
        raise UpstreamNotAllowed(f"Upstream-URL {error}") from None


def find_allowed(
    patterns: Sequence[AddressPattern], networks: Sequence[Network], target: Target
) -> Allowed:
    """Which addresses the host of a target may resolve to, if the target matches a pattern."""
    fitting = [pattern for pattern in patterns if pattern.fits(target)]
    if not fitting or _climbs(target.path):
        raise UpstreamNotAllowed(
            "Upstream-URL matches no pattern of the server's proxy_allow setting"
        )
    named = [*networks, *(network for pattern in fitting for network in pattern.names)]

    def allowed(address: Address) -> bool:
        return is_public(address) or any(
            address.version == network.version and address in network for network in named
        )

    return allowed


def _named_by(host: str) -> tuple[Network, ...]:
    if host == "localhost":
        return _LOOPBACK
    try:
        return (ip_network(ip_address(host)),)
    except ValueError:
        return ()


def _fits_path(parts: tuple[str, ...], path: str) -> bool:
    """Whether the parts occur in a path in this order, the first and the last at its ends."""
    if len(parts) == 1:
        return path == parts[0]
    first, *middle, last = parts
    if len(path) < len(first) + len(last) or not path.startswith(first):
        return False
    if not path.endswith(last):
        return False
    at, end = len(first), len(path) - len(last)
    for part in middle:
        found = path.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _climbs(path: str) -> bool:
    segments = re.split(r"[/\\]", unquote(path))
    return "." in segments or ".." in segments
