"""What somebody stored here never runs in the origin of the console."""

from __future__ import annotations

import pytest

from headwater.core.content_types import is_inert
from tests.http.client import Client

MARKUP = b"<script>fetch('/v1/streams')</script>"
ACTIVE = [
    *("text/html", "TEXT/HTML; charset=utf-8", "image/svg+xml", "application/xhtml+xml"),
    *("text/xml", "application/xml", "application/rss+xml", "application/pdf", "text/javascript"),
    *("multipart/x-mixed-replace", "text/unheard-of", "application/x-new"),
]
INERT = ["application/json", "text/plain; charset=utf-8", "application/octet-stream", "image/png"]


@pytest.mark.parametrize("content_type", ACTIVE)
def test_markup_is_sandboxed_wherever_it_is_read(client: Client, content_type: str) -> None:
    described = {"Content-Type": content_type}
    path = client.create(described)
    end = client.post(path, MARKUP, described).next_offset
    snapshot = f"/v1/stream/{path}/_snapshots/{end}"
    assert client.send("PUT", snapshot, described, MARKUP).status == 201
    first = client.get(path)
    known = {"If-None-Match": first.headers["ETag"]}
    for reply in (
        first,
        client.get(path, headers=known),
        client.get(path, "offset=now"),
        client.get(path, "offset=-1&live=long-poll"),
        client.head(path),
        client.send("GET", snapshot),
    ):
        assert reply.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("content_type", INERT)
def test_what_cannot_run_is_served_as_it_is(client: Client, content_type: str) -> None:
    described = {"Content-Type": content_type}
    path = client.create(described)
    assert "Content-Security-Policy" not in client.get(path).headers
    assert is_inert(content_type)
