"""Frequent responses are put together in one step, and are the same as all others."""

from __future__ import annotations

import pytest

from headwater.http.headers import REQUEST_ID
from headwater.http.messages import Request, Response
from headwater.http.wire.response_heads import Heads

LINES = b"Stream-Next-Offset: 7\r\n"


@pytest.mark.parametrize("status, body", [(204, b""), (200, b""), (200, b"{}")])
@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize("headers", [{}, {REQUEST_ID: b"mine"}, {b"origin": b"https://a.example"}])
@pytest.mark.parametrize("origins", [None, frozenset[str](), frozenset({"https://a.example"})])
def test_a_frequent_response_is_like_any_other(
    origins: frozenset[str] | None,
    headers: dict[bytes, bytes],
    close: bool,
    status: int,
    body: bytes,
) -> None:
    request = Request("POST", b"/v1/stream/s", b"", headers)
    length = None if status == 204 else len(body)
    while True:
        heads = Heads(origins, is_private=False)
        whole = heads.whole(status, LINES, body, request, close=close)
        response = Response(status, lines=LINES)
        head = heads.of_response(response, request, length, close=close)
        if heads.whole(status, LINES, body, request, close=close) == whole:
            # All of it within one second.
            break
    assert whole == head + body
    # Without a length, a client would wait for the end of the connection.
    assert (b"Content-Length: %d\r\n" % len(body) in whole) is (status != 204)
