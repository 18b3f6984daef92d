"""Where the server may send requests on behalf of others.

A client that names an address for the server to call (a webhook, the source of a durable response)
makes the server send requests from its own network. So that no client can reach anything that way
which it could not reach itself:

- an address is an `http` or `https` URL of printable ASCII that names a host, without user name,
  password and fragment;
- its host resolves only to addresses of the public internet. Private, shared, loopback, link-local
  (where clouds keep their metadata), multicast, unspecified and reserved addresses are refused,
  either as they are or embedded in IPv6 (mapped, NAT64, 6to4, Teredo);
- if a name has several addresses, each of them must be allowed;
- all of that is checked before every request, and the request goes to the very address that was
  checked (`service.outbound`).

The callers define exceptions and schemes: `core.subscriptions.targets` for webhooks,
`core.responses.allow_list` for durable responses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

URL_CHARS_MAX: Final = 2048
HOST_CHARS_MAX: Final = 253
PORTS: Final = {"https": 443, "http": 80}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Public by number, but not part of the public internet.
_REFUSED: Final = (
    IPv4Network("168.63.129.16/32"),  # the metadata service of Azure
    IPv4Network("192.0.0.0/24"),  # protocol assignments, and the metadata of Oracle
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv6Network("64:ff9b:1::/48"),  # NAT64 within a network
    IPv6Network("2001::/23"),  # Teredo and other protocol assignments
    IPv6Network("fec0::/10"),  # site-local
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")


class TargetRefused(Exception):
    """The server does not call this address; the message goes after the name of its source."""


class Target(NamedTuple):
    """A parsed address."""

    scheme: str
    host: str
    port: int
    resource: str
    """Path and query."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def path(self) -> str:
        return self.resource.partition("?")[0]

    def url_at(self, address: Address) -> str:
        """The same resource, with the host already looked up."""
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        return f"{self.scheme}://{host}:{self.port}{self.resource}"


def parse_url(url: str) -> Target:
    if not 1 <= len(url) <= URL_CHARS_MAX or not all("!" <= char <= "~" for char in url):
        raise TargetRefused(f"is a URL of up to {URL_CHARS_MAX} ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise TargetRefused("is not a valid URL") from None
    if parts.scheme not in PORTS or not host or "\\" in url or port == 0:
        raise TargetRefused("must be an https address")
    if not is_host(host):
        raise TargetRefused("must name a host")
    if parts.username is not None or parts.password is not None or "#" in url:
        raise TargetRefused("must have no user name, password or fragment")
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], resource)


def check_each(texts: Iterable[str], allowed: Callable[[Address], bool]) -> list[Address]:
    """The addresses of a host, if all of them are allowed."""
    found: list[Address] = []
    for text in texts:
        try:
            address = ip_address(text)
        except ValueError:
            raise TargetRefused("leads to something unknown") from None
        if not allowed(address):
            raise TargetRefused("leads to an address that is not on the public internet")
        found.append(address)
    return found


def is_public(address: Address) -> bool:
    """Whether anyone can reach this address on the public internet."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        inner = _wrapped(address)
        if inner is not None:
            return is_public(inner)
    if any(address.version == network.version and address in network for network in _REFUSED):
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def is_host(host: str) -> bool:
    """Whether it is an address, or a name that can be looked up and appear in a certificate."""
    if ":" not in host:
        return len(host) <= HOST_CHARS_MAX and _HOST.fullmatch(host) is not None
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False
