"""The public contract of durable responses, case by case, over the wire."""

from __future__ import annotations

import threading
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.conftest import StartServer
from tests.responses.reader import Proxy, bare, code
from tests.support.upstream import Peer, Upstream

PATIENCE_S = 60


def held(upstream: Upstream, *first: bytes) -> tuple[str, threading.Event]:
    """An answer that begins, and ends when the event is set."""
    release = threading.Event()

    def script(peer: Peer) -> None:
        peer.head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
        for part in first:
            peer.send(b"%x\r\n%b\r\n" % (len(part), part))
        assert release.wait(PATIENCE_S)
        peer.send(b"3\r\nend\r\n0\r\n\r\n")

    return upstream.on("/held", script), release


# ── Making ───────────────────────────────────────────────────────────────────────────────────


def test_an_answer_becomes_a_stream(proxy: Proxy, upstream: Upstream) -> None:
    url = upstream.on("/a", lambda peer: peer.answer(b"tokens", "Content-Type: text/plain"))
    answer = proxy.make(url)
    assert answer.status_code == 201
    assert answer.headers["Upstream-Content-Type"] == "text/plain"
    assert answer.content == b""
    assert answer.headers["Cache-Control"] == "no-store"
    location = answer.headers["Location"]
    assert set(parse_qs(urlsplit(location).query)) == {"expires", "signature"}
    assert urlsplit(location).path.startswith("/v1/proxy/")
    assert proxy.follow(location).body == b"tokens"


def test_the_answer_comes_with_the_head_and_not_with_the_end(
    proxy: Proxy, upstream: Upstream
) -> None:
    url, release = held(upstream, b"first ")
    location = proxy.open(url)
    events = proxy.events(location)
    data, control = next(events)
    while not data:
        data, control = next(events)
    assert data == b"first "
    assert "streamClosed" not in control
    release.set()
    rest = list(events)
    assert b"".join(part for part, _ in rest) == b"end"
    assert rest[-1][1]["streamClosed"] is True
    assert "streamCloseReason" not in rest[-1][1]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "post"])
def test_every_method_of_the_contract_is_sent(
    proxy: Proxy, upstream: Upstream, method: str
) -> None:
    url = upstream.on("/m", lambda peer: peer.answer(b"done"))
    location = proxy.open(url + "?q=1&r=%20", method, b"" if method == "GET" else b"body")
    assert proxy.follow(location).body == b"done"
    (seen,) = upstream.seen
    assert (seen.method, seen.path) == (method.upper(), "/m?q=1&r=%20")
    assert seen.body == (b"" if method == "GET" else b"body")


def test_headers_go_on_except_those_that_are_about_this_server(
    proxy: Proxy, upstream: Upstream
) -> None:
    url = upstream.on("/h", lambda peer: peer.answer(b""))
    proxy.make(
        url,
        body=b"{}",
        Content_Type="application/json",
        X_Custom="yes",
        Authorization="Bearer for-headwater",
        Upstream_Authorization="Bearer for-upstream",
        Upstream_Extra="no",
        Accept_Encoding="gzip, br",
        Connection="x-hop, keep-alive",
        X_Hop="no",
        TE="trailers",
        Proxy_Authorization="no",
    )
    (seen,) = upstream.seen
    assert seen.values("host") == [f"127.0.0.1:{upstream.port}"]
    assert seen.values("authorization") == ["Bearer for-upstream"]
    assert seen.values("content-type") == ["application/json"]
    assert seen.values("x-custom") == ["yes"]
    assert seen.values("accept-encoding") == ["identity"]
    names = {name for name, _ in seen.headers}
    assert not {name for name in names if name.startswith("upstream-")}
    assert names.isdisjoint({"x-hop", "te", "proxy-authorization"})


def test_without_upstream_authorization_none_is_sent(proxy: Proxy, upstream: Upstream) -> None:
    url = upstream.on("/h", lambda peer: peer.answer(b""))
    proxy.make(url, Authorization="Bearer for-headwater")
    assert upstream.seen[0].values("authorization") == []


@pytest.mark.parametrize(
    "url, method, expected",
    [
        (None, "GET", (400, "MISSING_UPSTREAM_URL")),
        ("", "GET", (400, "MISSING_UPSTREAM_URL")),
        ("http://127.0.0.1/", None, (400, "MISSING_UPSTREAM_METHOD")),
        ("http://127.0.0.1/", "", (400, "MISSING_UPSTREAM_METHOD")),
        ("http://127.0.0.1/", "HEAD", (400, "INVALID_UPSTREAM_METHOD")),
        ("http://127.0.0.1/", "CONNECT", (400, "INVALID_UPSTREAM_METHOD")),
        ("http://127.0.0.1/", "G ET", (400, "INVALID_UPSTREAM_METHOD")),
        ("https://127.0.0.1/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://127.0.0.2/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://10.0.0.1/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://[::1]/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://2130706433/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://localhost:9/v2/x", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://localhost:9/v1/../admin", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://localhost:9/v1/%2e%2e/admin", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://localhost:9/v1/..%2fadmin", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://u:p@127.0.0.1/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://127.0.0.1/#x", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("ftp://127.0.0.1/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("file:///etc/passwd", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("//127.0.0.1/", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("nonsense", "GET", (403, "UPSTREAM_NOT_ALLOWED")),
        ("http://127.0.0.1:1/", "GET", (502, "UPSTREAM_ERROR")),
    ],
)
def test_what_is_refused(
    proxy: Proxy, url: str | None, method: str | None, expected: tuple[int, str]
) -> None:
    assert code(proxy.make(url, method)) == expected


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "304 Not Modified", "307 x", "308 x"])
def test_redirects_are_not_followed(proxy: Proxy, upstream: Upstream, status: str) -> None:
    there = upstream.on("/there", lambda peer: peer.answer(b"secret"))
    url = upstream.on("/r", lambda peer: peer.head(f"Location: {there}", status=status))
    assert code(proxy.make(url)) == (400, "REDIRECT_NOT_ALLOWED")
    assert [seen.path for seen in upstream.seen] == ["/r"]


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Not Found", "429 Slow", "503 Down"])
def test_errors_of_the_upstream_are_shown(proxy: Proxy, upstream: Upstream, status: str) -> None:
    body = b'{"error": "overloaded"}'
    url = upstream.on(
        "/e", lambda peer: peer.answer(body, "Content-Type: application/json", status=status)
    )
    answer = proxy.make(url)
    assert answer.status_code == 502
    assert answer.headers["Upstream-Status"] == status[:3]
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.content == body
    assert "Location" not in answer.headers


def test_markup_of_an_upstream_does_not_run_here(proxy: Proxy, upstream: Upstream) -> None:
    url = upstream.on(
        "/e", lambda peer: peer.answer(b"<script>", "Content-Type: text/html", status="500 x")
    )
    assert "sandbox" in proxy.make(url).headers["Content-Security-Policy"]
    page = upstream.on("/p", lambda peer: peer.answer(b"<script>", "Content-Type: text/html"))
    answer = proxy.http.get(proxy.open(page))
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Upstream-Content-Type"] == "text/html"


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


def test_it_is_read_as_any_stream(proxy: Proxy, upstream: Upstream) -> None:
    url, release = held(upstream, b"0123456789")
    location = proxy.open(url)
    data = b""
    offset = ""
    for part, control in proxy.events(location):
        data, offset = data + part, control["streamNextOffset"]
        if data:
            break
    release.set()
    assert proxy.follow(location, offset).body == b"end"
    answer = proxy.http.get(location)
    assert answer.content == b"0123456789end"
    assert answer.headers["Stream-Closed"] == "true"
    assert answer.headers["Upstream-Content-Type"] == "text/event-stream"
    assert "Stream-Close-Reason" not in answer.headers
    again = proxy.http.get(location, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    assert code(proxy.http.get(f"{location}&offset=nonsense")) == (400, "INVALID_OFFSET")
    assert code(proxy.http.get(f"{location}&live=sse")) == (400, "INVALID_OFFSET")


def test_an_address_is_for_one_response_only(proxy: Proxy, upstream: Upstream) -> None:
    url = upstream.on("/a", lambda peer: peer.answer(b"x"))
    first, second = proxy.open(url), proxy.open(url)
    signature, expires = (
        parse_qs(urlsplit(first).query)[name][0] for name in ("signature", "expires")
    )
    get = proxy.http.get
    swapped = f"{bare(second)}?expires={expires}&signature={signature}"
    assert code(get(swapped)) == (401, "SIGNATURE_INVALID")
    later = f"{bare(first)}?expires={int(expires) + 1}&signature={signature}"
    assert code(get(later)) == (401, "SIGNATURE_INVALID")
    twice = f"{first}&signature={signature}"
    assert code(get(twice)) == (401, "MISSING_SIGNATURE")
    alone = f"{bare(first)}?signature={signature}"
    assert code(get(alone)) == (401, "MISSING_SIGNATURE")
    strange = f"{bare(first)}?expires={expires}&signature=%E2%9C%93"
    assert code(get(strange)) == (401, "SIGNATURE_INVALID")
    assert proxy.follow(first).body == b"x"


# ── Ending ───────────────────────────────────────────────────────────────────────────────────


def test_an_abort_ends_it_and_keeps_what_came(proxy: Proxy, upstream: Upstream) -> None:
    gone = threading.Event()

    def script(peer: Peer) -> None:
        peer.chunked([b"so far"], end=False)
        if peer.wait_for_hangup():
            gone.set()

    location = proxy.open(upstream.on("/x", script))
    events = proxy.events(location)
    seen = b""
    for data, control in events:
        seen += data
        if seen and "streamClosed" not in control:
            assert proxy.http.patch(f"{location}&action=abort").status_code == 204
    assert seen == b"so far"
    assert control["streamCloseReason"] == "aborted"
    assert gone.wait(PATIENCE_S)
    assert proxy.follow(location).reason == "aborted"
    assert proxy.http.patch(f"{location}&action=abort").status_code == 204


def test_aborting_what_is_complete_changes_nothing(proxy: Proxy, upstream: Upstream) -> None:
    location = proxy.open(upstream.on("/a", lambda peer: peer.answer(b"all of it")))
    assert proxy.follow(location).reason is None
    assert proxy.http.patch(f"{location}&action=abort").status_code == 204
    ended = proxy.follow(location)
    assert (ended.body, ended.reason) == (b"all of it", None)


def test_abort_takes_a_signature_and_an_action(proxy: Proxy, upstream: Upstream) -> None:
    location = proxy.open(upstream.on("/a", lambda peer: peer.answer(b"x")))
    patch = proxy.http.patch
    assert code(patch(f"{bare(location)}?action=abort")) == (401, "MISSING_SIGNATURE")
    assert code(patch(bare(location))) == (401, "MISSING_SIGNATURE")
    assert code(patch(f"{location}x&action=abort")) == (401, "SIGNATURE_INVALID")
    assert code(patch(location)) == (400, "INVALID_ACTION")
    assert code(patch(f"{location}&action=renew")) == (400, "INVALID_ACTION")


def test_a_delete_ends_it_and_may_be_repeated(proxy: Proxy, upstream: Upstream) -> None:
    gone = threading.Event()

    def script(peer: Peer) -> None:
        peer.chunked([b"so far"], end=False)
        if peer.wait_for_hangup():
            gone.set()

    location = proxy.open(upstream.on("/x", script))
    assert proxy.http.delete(bare(location)).status_code == 204
    assert gone.wait(PATIENCE_S)
    assert code(proxy.http.get(location)) == (404, "STREAM_NOT_FOUND")
    assert proxy.http.head(bare(location)).status_code == 404
    assert proxy.http.delete(bare(location)).status_code == 204
    assert code(proxy.http.patch(f"{location}&action=abort")) == (404, "STREAM_NOT_FOUND")


@pytest.mark.parametrize("name", ["x" * 24, "x", "..", "a%2Fb", "%00", "x" * 5000])
def test_what_is_not_there(proxy: Proxy, name: str) -> None:
    assert proxy.http.get(f"/v1/proxy/{name}").status_code == 404
    assert proxy.http.head(f"/v1/proxy/{name}").status_code == 404


def test_a_plain_stream_is_no_response(proxy: Proxy) -> None:
    name = "y" * 24
    stream = f"/v1/stream/responses/{name}"
    assert proxy.http.put(stream, content=b"hello").status_code == 201
    assert code(proxy.http.get(f"/v1/proxy/{name}")) == (404, "STREAM_NOT_FOUND")
    assert proxy.http.get(stream).content == b"hello"


def test_what_is_known_of_it(proxy: Proxy, upstream: Upstream) -> None:
    location = proxy.open(
        upstream.on("/a", lambda peer: peer.answer(b"x", "Content-Type: text/csv"))
    )
    proxy.follow(location)
    head = proxy.http.head(bare(location))
    assert head.status_code == 200
    assert head.headers["Upstream-Content-Type"] == "text/csv"
    assert head.headers["Stream-Closed"] == "true"
    assert head.headers["Stream-Next-Offset"].endswith("_0000000000000001")


def test_an_empty_answer_is_a_closed_stream(proxy: Proxy, upstream: Upstream) -> None:
    location = proxy.open(upstream.on("/n", lambda peer: peer.head(status="204 No Content")))
    ended = proxy.follow(location)
    assert (ended.body, ended.reason) == (b"", None)


def test_other_methods_are_405(proxy: Proxy) -> None:
    assert proxy.http.put("/v1/proxy").status_code == 405
    answer = proxy.http.post(f"/v1/proxy/{'x' * 24}")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD, PATCH, DELETE, OPTIONS"


def test_without_a_list_there_is_no_such_thing(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server("--memory").url) as http:
        assert code(Proxy(http).make("http://127.0.0.1/")) == (404, "NOT_FOUND")
