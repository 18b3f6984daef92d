"""What web pages may do to a server.

Any web page can make the browser send requests to any server that the browser can reach, including
this one on the user's own machine. Access control stops that: pages have no key. A server without
it has to tell pages from programs, by headers that browsers set and pages cannot change:

- **Host.** A page whose own name is made to point here (DNS rebinding) has the same origin as this
  server, as far as the browser can tell. But it sends that name. So without access control `Host`
  must be an IP address, `localhost`, or a configured name.
- **Origin.** A request that changes something and comes from a page of another origin is refused,
  unless that origin is configured. `Sec-Fetch-Site` says the same, and some requests have only
  that. A page of another origin cannot see what it reads, since it gets no
  `Access-Control-Allow-Origin`. With the origin `*`, pages of every origin may do everything.
- **Content-Type.** A page can send text to any server without a preflight request, but not JSON. So
  where a body is JSON, browsers have to declare it.

Programs other than browsers send neither `Origin` nor `Sec-Fetch-Site`, and are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

EVERYONE: Final = "*"
_ORIGIN: Final = re.compile(r"null|[a-z][a-z0-9+.-]*://[A-Za-z0-9.\-_\[\]:]+")
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{0,5})?")
_NAME: Final = re.compile(r"[A-Za-z0-9\-._]{1,253}")
_OWN_SITE: Final = frozenset({"same-origin", "none"})


def parse_origins(setting: str) -> frozenset[str] | None:
    """The origins in a comma-separated list; None for all of them."""
    if setting.strip() == EVERYONE:
        return None
    origins = frozenset(origin.strip() for origin in setting.split(",") if origin.strip())
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise ValueError(
                f"{origin!r} is not an origin; write https://app.example.com, separate "
                "several with commas, or write * for all or nothing for none"
            )
    return origins


def parse_hosts(setting: str) -> frozenset[str] | None:
    """The names in a comma-separated list; None for all of them."""
    if setting.strip() == EVERYONE:
        return None
    names = frozenset(name.strip().lower() for name in setting.split(",") if name.strip())
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} is not a host name; write streams.example.com without a port, "
                "separate several with commas, or write * for all"
            )
    return names


def is_own_host(host: str, names: Iterable[str]) -> bool:
    """Whether a `Host` header names this server in a way that nobody else can."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"].lower()
    if name == "localhost" or name in names:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_foreign(origin: str | None, site: str | None, host: str, known: Iterable[str]) -> bool:
    """Whether a request comes from a page of another origin that is not configured."""
    if origin is not None and origin in known:
        return False
    if site is not None:
        return site not in _OWN_SITE
    # Browsers without that header: the page is our own if its host is the requested one.
    return origin is not None and origin.partition("://")[2] != host
