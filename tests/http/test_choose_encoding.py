"""Which content encoding a client gets."""

from __future__ import annotations

import gzip
import zlib

import brotli  # type: ignore[import-untyped]  # it has no stubs
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.http.compression import ENCODERS, choose_encoding, is_compressible

# How fast the machine is says nothing about the code.
pure = settings(deadline=None)

DECODERS = {
    "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
    "br": brotli.decompress,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


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
def test_choice(accepted: str, expected: str | None) -> None:
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
