"""Content encodings: which one a client gets, and that others can decode it."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]  # it has no stubs
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.limits import KIB
from headwater.core.stream import StreamConfig
from headwater.http.compression import ENCODERS, choose_encoding, is_compressible
from headwater.http.messages import Request, Response
from headwater.http.reads import ChunkBody, Packing, read_response
from headwater.service.chunks import Chunk
from tests.http.client import JSON, TEXT, Client

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": brotli.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
}
# How fast the machine is says nothing about the code.
pure = settings(deadline=None)
LINE = "Ein Fluß hat eine Quelle. ".encode()


def accepting(encodings: str) -> dict[str, str]:
    return {"Accept-Encoding": encodings}


# Small ones are compressed on the spot, large ones on a thread.
@pytest.mark.parametrize("repeat", [100, 10_000])
@pytest.mark.parametrize("encoding", DECODERS)
def test_a_compressed_read_says_the_same(client: Client, encoding: str, repeat: int) -> None:
    path = client.create(TEXT, LINE * repeat)
    plain = client.get(path)
    packed = client.get(path, headers=accepting(encoding))
    assert packed.headers["Content-Encoding"] == encoding
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.body) < len(plain.body) // 4
    assert DECODERS[encoding](packed.body) == plain.body == LINE * repeat
    for name in ("Content-Type", "Stream-Next-Offset", "Stream-Up-To-Date", "Cache-Control"):
        assert packed.headers[name] == plain.headers[name]


class Threads:
    """Stands in for threads that take their time."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], bytes]] = []
        self.done = asyncio.Event()

    async def __call__(self, pack: Callable[[], bytes]) -> bytes:
        self.asked.append(pack)
        await self.done.wait()
        return pack()


def chunk_of(size: int) -> Chunk:
    half = b"x" * (size // 2)
    bodies = [half, half + b"x" * (size % 2)]
    return Chunk(StreamConfig(1, "s", "text/plain", 0), 0, size, bodies, True, False)


async def test_the_loop_compresses_only_what_is_small() -> None:
    """Hundreds may ask at once, and everyone else waits for all of them."""
    threads = Threads()
    packing = Packing(threads)
    small, large = ChunkBody(chunk_of(8 * KIB)), ChunkBody(chunk_of(8 * KIB + 1))
    assert gzip.decompress(small.packed("gzip", packing)) == small.plain  # type: ignore[arg-type]
    later = large.packed("gzip", packing)
    assert isinstance(later, asyncio.Future)
    threads.done.set()
    assert gzip.decompress(await later) == large.plain


async def test_who_would_have_to_wait_long_is_sent_it_as_it_is() -> None:
    """Others need the threads too, and nothing is put together for those who wait."""
    threads = Threads()
    packing = Packing(threads)
    request = Request("GET", b"/", b"", {b"accept-encoding": b"gzip"})
    answers = [read_response(request, chunk_of(100_000), None, packing) for _ in range(200)]
    at_once = [answer for answer in answers if isinstance(answer, Response)]
    later = [asyncio.ensure_future(one) for one in answers if not isinstance(one, Response)]
    assert len(at_once) > 100
    assert {answer.body for answer in at_once} == {b"x" * 100_000}
    assert not any(name == "Content-Encoding" for one in at_once for name, _ in one.headers)
    await asyncio.sleep(0)
    assert len(threads.asked) <= 2
    # Those who hang up make room for others.
    later.pop().cancel()
    threads.done.set()
    for answer in await asyncio.gather(*later):
        assert ("Content-Encoding", "gzip") in answer.headers
        assert isinstance(answer.body, bytes)
        assert gzip.decompress(answer.body) == b"x" * 100_000
    after = read_response(request, chunk_of(100_000), None, packing)
    assert not isinstance(after, Response)
    assert ("Content-Encoding", "gzip") in (await after).headers
    assert packing._begun == 0


@pytest.mark.parametrize("encoding", DECODERS)
def test_compressed_json(client: Client, encoding: str) -> None:
    path = client.create(JSON, b"[" + b",".join([b'{"k":"v"}'] * 500) + b"]")
    packed = client.get(path, headers=accepting(encoding))
    assert packed.headers["Content-Encoding"] == encoding
    assert DECODERS[encoding](packed.body) == client.get(path).body


@pytest.mark.parametrize(
    "accepted, expected",
    [
        ("identity", None),
        ("", None),
        ("compress", None),
        ("gzip;q=0", None),
        ("gzip;q=0, *", "zstd"),
        ("GZIP", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate, br", "br"),
        ("br;q=0.1, gzip;q=0.9", "gzip"),
        ("identity;q=1, gzip;q=0.5", None),
        ("*;q=0", None),
        ("gzip;q=nonsense", None),
        (",;=,;q", None),
        ("\xff", None),
    ],
)
def test_the_client_chooses(client: Client, accepted: str, expected: str | None) -> None:
    path = client.create(TEXT, LINE * 100)
    reply = client.get(path, headers=accepting(accepted))
    assert reply.status == 200
    assert reply.headers.get("Content-Encoding") == expected


def test_small_bodies_are_left_alone(client: Client) -> None:
    short, long = client.create(TEXT, b"x" * 1023), client.create(TEXT, b"x" * 1024)
    assert "Content-Encoding" not in client.get(short, headers=accepting("gzip")).headers
    assert client.get(long, headers=accepting("gzip")).headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    "content_type, worth_it",
    [
        ("text/csv", True),
        ("text/plain; charset=utf-8", True),
        ("application/json", True),
        ("application/problem+json", True),
        ("application/x-ndjson", True),
        ("image/svg+xml", True),
        ("application/octet-stream", False),
        ("image/png", False),
        ("video/mp4", False),
    ],
)
def test_only_what_shrinks_is_compressed(client: Client, content_type: str, worth_it: bool) -> None:
    path = client.create({"Content-Type": content_type}, b'"' + b"x" * 4096 + b'"')
    reply = client.get(path, headers=accepting("gzip"))
    assert ("Content-Encoding" in reply.headers) is worth_it


def test_a_compressed_read_is_conditional_too(client: Client) -> None:
    path = client.create(TEXT, LINE * 100)
    tag = client.get(path, headers=accepting("br")).headers["ETag"]
    reply = client.get(path, headers=accepting("br") | {"If-None-Match": tag})
    assert (reply.status, reply.body) == (304, b"")
    assert "Content-Encoding" not in reply.headers


def test_events_are_never_compressed(client: Client) -> None:
    path = client.create(TEXT, LINE * 100)
    client.close(path)
    reply = client.get(path, "offset=-1&live=sse", accepting("gzip, br, zstd"))
    assert "Content-Encoding" not in reply.headers
    assert LINE in reply.body


def test_a_long_poll_with_data_is_compressed(client: Client) -> None:
    path = client.create(TEXT, LINE * 100)
    reply = client.get(path, "offset=-1&live=long-poll", accepting("gzip"))
    assert gzip.decompress(reply.body) == LINE * 100


def test_a_long_poll_that_waited_is_compressed_for_each(client: Client) -> None:
    path = client.create(TEXT)
    with (
        client.long_poll(path, "offset=now", accepting("gzip")) as packed,
        client.long_poll(path, "offset=now", accepting("br")) as other,
        client.long_poll(path, "offset=now") as plain,
    ):
        client.post(path, LINE * 100, TEXT)
        assert gzip.decompress(packed.reply().body) == LINE * 100
        assert brotli.decompress(other.reply().body) == LINE * 100
        assert plain.reply().body == LINE * 100


# ── Without a server ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "accepted, expected",
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("br", "br"),
        ("zstd", "zstd"),
        ("x-unknown", None),
        ("GZip", "gzip"),
        (" gzip ", "gzip"),
        ("gzip;q=1.0", "gzip"),
        ("gzip ; q=0.5", "gzip"),
        # Equally welcome: the better one.
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate, br", "br"),
        ("deflate, gzip", "gzip"),
        # The client's order of preference comes first.
        ("gzip;q=1, br;q=0.9, zstd;q=0.8", "gzip"),
        ("zstd;q=0.1, deflate;q=0.2", "deflate"),
        # Refused ones are never used.
        ("gzip;q=0", None),
        ("gzip;q=0.000", None),
        ("zstd;q=0, *", "br"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("gzip, *;q=0", "gzip"),
        # Nothing at all may be what the client likes best.
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("identity;q=0, gzip", "gzip"),
        # Nonsense is not an acceptance.
        ("gzip;q=high", None),
        ("gzip;q=", None),
        (";q=1", None),
        (",,,", None),
    ],
)
def test_the_choice_of_an_encoding(accepted: str, expected: str | None) -> None:
    assert choose_encoding(accepted) == expected


@pure
@given(st.text(st.sampled_from("gzipbrstdelfa*;q=01., \t\xff") | st.characters()))
def test_any_header_has_a_choice(accepted: str) -> None:
    assert choose_encoding(accepted) in {None, *ENCODERS}


@pure
@given(st.lists(st.sampled_from([*ENCODERS, "identity", "*", "other"]), unique=True))
def test_what_was_not_offered_is_not_used(offered: list[str]) -> None:
    choice = choose_encoding(", ".join(offered))
    assert choice is None or choice in offered or "*" in offered


@pytest.mark.parametrize("name", ENCODERS)
@pure
@given(body=st.binary(max_size=5000))
def test_encoders_can_be_undone(name: str, body: bytes) -> None:
    assert DECODERS[name](ENCODERS[name](body)) == body


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_deterministic(name: str) -> None:
    """The same read has the same entity tag, so it should be the same bytes."""
    body = b"Headwater " * 500
    assert ENCODERS[name](body) == ENCODERS[name](body)


@pytest.mark.parametrize(
    "content_type, expected",
    [
        ("text/plain", True),
        ("Text/HTML; charset=utf-8", True),
        ("application/json", True),
        ("application/vnd.api+json; x=y", True),
        ("application/atom+xml", True),
        ("application/octet-stream", False),
        ("application/zip", False),
        ("image/jpeg", False),
        ("", False),
    ],
)
def test_what_is_worth_compressing(content_type: str, expected: bool) -> None:
    assert is_compressible(content_type) is expected
