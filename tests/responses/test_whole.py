"""Everything arrives, once, whatever happens to the reader and to the server."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.responses.conftest import ALLOW
from tests.responses.reader import Proxy, code
from tests.support.upstream import Peer, Upstream

PATIENCE_S = 60
TOKENS = 20_000
TOKEN_BYTES = 512


def tokens() -> list[bytes]:
    """10 MB in 20,000 tokens, of which no two are the same."""
    return [f"{n:08d} ".encode() * (TOKEN_BYTES // 9 + 1) for n in range(TOKENS)]


def test_ten_megabytes_reach_a_reader_who_drops_all_the_time(
    start_server: StartServer, tmp_path: Path, upstream: Upstream
) -> None:
    """The reader hangs up after every few events, in the middle of whatever comes next.

    Time is scaled down: the tokens come as fast as they are taken, and the reader drops about as
    often for each megabyte as one that drops every second of a slower answer.
    """
    parts = [part[:TOKEN_BYTES] for part in tokens()]
    server = start_server("--data", str(tmp_path / "data"), *ALLOW)
    url = upstream.on("/tokens", lambda peer: peer.chunked(parts, "Content-Type: text/plain"))
    received, offset, drops, closed = hashlib.sha256(), "-1", 0, False
    size = 0
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        proxy = Proxy(http)
        location = proxy.open(url)
        while not closed:
            for count, (data, control) in enumerate(proxy.events(location, offset)):
                received.update(data)
                size += len(data)
                offset = control["streamNextOffset"]
                closed = control.get("streamClosed", False)
                if count == 2:
                    drops += 1
                    break
        assert size == TOKENS * TOKEN_BYTES
        assert received.digest() == hashlib.sha256(b"".join(parts)).digest()
        assert drops > 3
        assert http.get(location).headers["Stream-Next-Offset"]
    assert len(upstream.seen) == 1


@pytest.mark.crash
def test_what_was_told_survives_a_kill_and_the_rest_is_said_to_be_missing(
    start_server: StartServer, tmp_path: Path, upstream: Upstream
) -> None:
    killed = threading.Event()

    def script(peer: Peer) -> None:
        peer.head("Content-Type: text/plain", "Transfer-Encoding: chunked")
        n = 0
        while not killed.wait(0.002):
            token = b"%06d " % n
            peer.send(b"%x\r\n%b\r\n" % (len(token), token))
            n += 1

    server = start_server("--data", str(tmp_path / "data"), *ALLOW)
    url = upstream.on("/tokens", script)
    done = upstream.on("/done", lambda peer: peer.answer(b"complete"))
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        proxy = Proxy(http)
        complete = proxy.open(done)
        assert proxy.follow(complete).reason is None
        location = proxy.open(url)
        seen = b""
        for data, _ in proxy.events(location):
            seen += data
            if len(seen) > 500:
                break
    server.kill()
    killed.set()
    server.start()
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        proxy = Proxy(http)
        ended = proxy.follow(location)
        assert ended.reason == "interrupted"
        assert ended.body.startswith(seen)
        assert ended.body == b"".join(b"%06d " % n for n in range(len(ended.body) // 7))
        assert proxy.follow(complete) == proxy.follow(complete)
        assert proxy.follow(complete).body == b"complete"
        assert proxy.follow(complete).reason is None


def test_an_address_ends_with_its_response(start_server: StartServer, upstream: Upstream) -> None:
    server = start_server("--memory", *ALLOW, "--proxy-ttl-s", "1")
    url = upstream.on("/a", lambda peer: peer.answer(b"x"))
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        proxy = Proxy(http)
        location = proxy.open(url)
        while (answer := http.get(location)).status_code == 200:
            pass
        assert code(answer) == (401, "SIGNATURE_EXPIRED")
        name = location.partition("?")[0].rpartition("/")[2]
        assert code(http.get(f"/v1/proxy/{name}")) == (404, "STREAM_NOT_FOUND")
