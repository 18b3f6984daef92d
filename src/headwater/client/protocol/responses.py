"""Durable responses on the wire: the request for one, and its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from headwater.client.protocol.streams import Request, Response, merged, unexpected

_PROXY: Final = "/v1/proxy"
_OF_UPSTREAM: Final = {"authorization": "Upstream-Authorization"}
ABORT: Final = {"action": "abort"}


def upstream_request(
    root: str, url: str, method: str, headers: Mapping[str, str] | None, body: bytes
) -> Request:
    """Have the server make a request. What is meant for the upstream is named so."""
    given = {_OF_UPSTREAM.get(name.lower(), name): value for name, value in (headers or {}).items()}
    about = {"Upstream-URL": url, "Upstream-Method": method}
    return Request(
        "POST",
        urljoin(root, _PROXY),
        headers=merged(given, about),
        body=body,
        # It is answered with the head of the upstream, which may take its time.
        patience="long-poll",
        repeatable=False,
    )


def address_of(root: str, response: Response) -> str:
    """The signed address of a new response, on the server that was asked.

    A server behind a proxy may not know by which name and scheme it is reached.
    """
    location = urlsplit(response.headers.get("location", ""))
    if not location.path or not location.query:
        raise unexpected(response, "the answer names no signed address")
    return urljoin(root, urlunsplit(("", "", location.path, location.query, "")))


def split_address(url: str) -> tuple[str, dict[str, str]]:
    """An address without its query, and the query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="", fragment="")), dict(parse_qsl(parts.query))


def join_address(url: str, params: Mapping[str, str]) -> str:
    return f"{url}?{urlencode(params)}" if params else url
