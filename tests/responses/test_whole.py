"""Everything arrives, once, whatever happens to the reader and to the server."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.responses.conftest import ALLOW
from tests.responses.reader import Proxy, code
from tests.support.upstream import Peer, Upstream

PATIENCE_S = 60
ANSWER_BYTES = 10_240_000
# An answer comes at 2,000 tokens a second, and its reader drops every second. Here time is five
# times as fast, and a token is a line; `RESPONSE_TOKENS_PER_SECOND=2000` is real time, and
# `RESPONSE_TOKEN_BYTES=5` with it the answer of a model, which takes a quarter of an hour.
TOKENS_PER_SECOND = int(os.environ.get("RESPONSE_TOKENS_PER_SECOND", "10000"))
TOKEN_BYTES = int(os.environ.get("RESPONSE_TOKEN_BYTES", "512"))
DROP_EVERY_S = 2000 / TOKENS_PER_SECOND


def tokens() -> Iterator[bytes]:
    """10 MB, of which no two places are the same."""
    text = itertools.chain.from_iterable(b"%08d " % n for n in itertools.count())
    for _ in range(ANSWER_BYTES // TOKEN_BYTES):
        yield bytes(itertools.islice(text, TOKEN_BYTES))


def paced(parts: list[bytes]) -> Iterator[bytes]:
    begun_s = time.monotonic()
    for number, part in enumerate(parts):
        time.sleep(max(0.0, begun_s + number / TOKENS_PER_SECOND - time.monotonic()))
        yield part


@pytest.mark.parametrize("pace", ["at a pace", "at once"])
def test_ten_megabytes_reach_a_reader_who_drops_all_the_time(
    pace: str, start_server: StartServer, tmp_path: Path, upstream: Upstream
) -> None:
    """The reader hangs up in the middle of whatever comes next, and goes on where it was."""
    parts, is_paced = list(tokens()), pace == "at a pace"
    # In pieces, even for a reader who had no turn until all of it was there.
    pieces = ("--chunk-bytes-max", "100000")
    server = start_server("--data", str(tmp_path / "data"), *ALLOW, *pieces)
    url = upstream.on(
        "/tokens",
        lambda peer: peer.chunked(paced(parts) if is_paced else parts, "Content-Type: text/plain"),
    )
    received, offset, drops, closed = bytearray(), "-1", 0, False
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        proxy = Proxy(http)
        location = proxy.open(url)
        while not closed:
            drop_at_s = time.monotonic() + DROP_EVERY_S
            # One that has no turn for a while is cut off, and comes back as well.
            with suppress(httpx.RemoteProtocolError):
                for count, (data, control) in enumerate(proxy.events(location, offset)):
                    received += data
                    offset = control["streamNextOffset"]
                    closed = control.get("streamClosed", False)
                    is_late = is_paced and time.monotonic() > drop_at_s
                    if is_late or count == (20 if is_paced else 2):
                        drops += 1
                        break
        assert len(received) == ANSWER_BYTES
        assert received == b"".join(parts)
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
        # Both end at the same moment: a request may find the address good, and nothing there.
        while (answer := http.get(location)).status_code in (200, 404):
            pass
        assert code(answer) == (401, "SIGNATURE_EXPIRED")
        name = location.partition("?")[0].rpartition("/")[2]
        assert code(http.get(f"/v1/proxy/{name}")) == (404, "STREAM_NOT_FOUND")
