"""The rules of durable responses: where to, with which headers, when stored, how signed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.responses import signing
from headwater.core.responses.about import About, Reason, content_type_of
from headwater.core.responses.allow_list import find_allowed, parse_networks, parse_patterns
from headwater.core.responses.errors import (
    InvalidSignature,
    MissingSignature,
    SignatureExpired,
    UpstreamNotAllowed,
)
from headwater.core.responses.forwarding import forwarded
from headwater.core.responses.gathering import GATHER_BYTES, GATHER_MS, HELD_BYTES_MAX, Gathering
from headwater.core.targets import TargetRefused, parse_url

SECRET = b"s" * 32


def fits(pattern: str, url: str) -> bool:
    try:
        find_allowed(parse_patterns(pattern), (), parse_url(url))
    except (UpstreamNotAllowed, TargetRefused):
        return False
    return True


@pytest.mark.parametrize(
    "pattern, url",
    [
        ("https://api.example.com", "https://api.example.com"),
        ("https://api.example.com", "https://API.example.com./v1/x?y=1"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/a/b?c"),
        ("https://api.example.com/*/chat", "https://api.example.com/v1/x/chat"),
        ("https://api.example.com/a*b*c", "https://api.example.com/aXbYbZc"),
        ("https://*.example.com", "https://a.b.example.com/"),
        ("https://api.example.com:*", "https://api.example.com:8443/"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://[::1]:8000", "http://[::1]:8000/x"),
        ("https://a.com, https://b.com", "https://b.com/"),
        ("https://a.com\n  https://b.com ,", "https://a.com/"),
    ],
)
def test_what_fits_a_pattern(pattern: str, url: str) -> None:
    assert fits(pattern, url)


@pytest.mark.parametrize(
    "pattern, url",
    [
        ("", "https://api.example.com/"),
        ("https://api.example.com", "http://api.example.com/"),
        ("https://api.example.com", "https://api.example.com:8443/"),
        ("https://api.example.com", "https://api.example.com.evil.com/"),
        ("https://api.example.com", "https://evil-api.example.com/"),
        ("https://*.example.com", "https://example.com/"),
        ("https://*.example.com", "https://.example.com.evil/"),
        ("https://*.example.com", "https://evilexample.com/"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1"),
        ("https://api.example.com/v1/*", "https://api.example.com/v2/v1/"),
        ("https://api.example.com/v1", "https://api.example.com/v1/"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/../v2"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/%2E%2e/v2"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/a/.%2e%2fv2"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/..%5cv2"),
        ("https://api.example.com/ab*ba", "https://api.example.com/aba"),
    ],
)
def test_what_fits_none(pattern: str, url: str) -> None:
    assert not fits(pattern, url)


@pytest.mark.parametrize(
    "pattern",
    [
        *("api.example.com", "*", "https://", "https://*", "https://*.com.*", "ftp://a.com"),
        *("https://a.com:0", "https://a.com:99999", "https://a b", "https://u@a.com"),
        *("https://a.com?x", "https://a.com#x", "https://a*.com", "//a.com"),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"pattern|host|port"):
        parse_patterns(pattern)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "x", "10.0.0.0/33"])
def test_what_is_no_network(text: str) -> None:
    with pytest.raises(ValueError, match="networks"):
        parse_networks(text)


@given(st.lists(st.text("ab/", max_size=3), min_size=1, max_size=4), st.text("ab/", max_size=12))
def test_a_path_fits_as_a_glob_does(parts: list[str], path: str) -> None:
    glob = "/" + "*".join(parts)
    expected = re.fullmatch(".*".join(map(re.escape, glob.split("*"))), "/" + path) is not None
    assert fits(f"https://a.com{glob}", f"https://a.com/{path}") == expected


@given(st.dictionaries(st.binary(min_size=1, max_size=20), st.binary(max_size=20), max_size=8))
def test_nothing_of_this_server_goes_on(headers: dict[bytes, bytes]) -> None:
    lowered = {name.lower(): value for name, value in headers.items()}
    lowered |= {b"authorization": b"mine", b"host": b"here", b"upstream-url": b"x"}
    lowered[b"cookie"] = b"session=mine"
    names = [name for name, _ in forwarded(lowered)]
    assert not {"host", "upstream-url", "connection", "content-length", "cookie"} & set(names)
    assert "mine" not in [value for name, value in forwarded(lowered) if name == "authorization"]
    assert names.count("accept-encoding") == 1


@given(st.text(max_size=40), st.integers(1, 10**12), st.binary(min_size=1, max_size=64))
def test_a_signature_holds_for_its_id_and_moment_until_then(
    name: str, expires: int, other: bytes
) -> None:
    signature = signing.sign(SECRET, name, expires)
    now_ms = expires * 1000 - 1
    signing.verify(SECRET, name, [str(expires)], [signature], now_ms)
    with pytest.raises(SignatureExpired):
        signing.verify(SECRET, name, [str(expires)], [signature], now_ms + 1)
    with pytest.raises(InvalidSignature):
        signing.verify(SECRET, name + "x", [str(expires)], [signature], now_ms)
    with pytest.raises(InvalidSignature):
        signing.verify(SECRET, name, [f"0{expires}"], [signature], now_ms)
    with pytest.raises(InvalidSignature):
        signing.verify(other, name, [str(expires)], [signature], now_ms)
    for missing in ([], [signature, signature]):
        with pytest.raises(MissingSignature):
            signing.verify(SECRET, name, [str(expires)], missing, now_ms)


def test_bytes_wait_for_more_but_not_long() -> None:
    gathering = Gathering()
    gathering.add(b"a", 1000)
    assert gathering.rest_ms(1000) == GATHER_MS
    gathering.add(b"b", 1040)
    assert gathering.rest_ms(1040) == GATHER_MS - 40
    assert gathering.rest_ms(2000) == 0
    gathering.add(b"c" * GATHER_BYTES, 1041)
    assert gathering.rest_ms(1041) == 0
    assert gathering.take() == b"ab" + b"c" * GATHER_BYTES
    assert (gathering.size, gathering.take()) == (0, b"")
    gathering.add(b"d", 5000)
    assert gathering.rest_ms(5001) == GATHER_MS - 1
    assert not gathering.is_full
    gathering.add(b"e" * HELD_BYTES_MAX, 5001)
    assert gathering.is_full


def test_what_is_known_is_short_and_plain() -> None:
    worst = About(content_type_of("\\" * 256), Reason.UPSTREAM_FAILED).encode()
    assert len(worst) < 1024
    assert worst.isascii()
    assert About("text/plain").encode() == '{"type":"text/plain"}'
