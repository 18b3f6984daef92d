"""From the bytes on the request line to a path."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidPath
from headwater.http.targets import decode_path, origin_form

# How fast the machine is says nothing about the code.
pure = settings(deadline=None)


@pytest.mark.parametrize(
    "raw, expected",
    [
        (b"", ""),
        (b"a", "a"),
        (b"a/b", "a/b"),
        (b"%61/b", "a/b"),
        (b"a%2Db", "a-b"),
        (b"a+b", "a+b"),
        (b"%C3%A9", "é"),
        (b"%25", "%"),
        (b"%2525", "%25"),
        (b"%zz", "%zz"),
        (b"%", "%"),
        (b"a//b", "a//b"),
    ],
)
def test_decoding(raw: bytes, expected: str) -> None:
    assert decode_path(raw) == expected


@pytest.mark.parametrize("raw", [b"\xff", b"%FF", b"%C3", b"a/%80", b"a%2Fb", b"a%2f"])
def test_what_cannot_be_decoded(raw: bytes) -> None:
    with pytest.raises(InvalidPath):
        decode_path(raw)


@pure
@given(st.lists(st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]))))
def test_what_was_quoted_comes_back(segments: list[str]) -> None:
    quoted = "/".join(quote(segment, safe="") for segment in segments)
    assert decode_path(quoted.encode()) == "/".join(segments)


@pure
@given(st.binary())
def test_any_bytes_are_a_path_or_refused(raw: bytes) -> None:
    with suppress(InvalidPath):
        assert isinstance(decode_path(raw), str)


@pytest.mark.parametrize(
    "target, expected",
    [
        (b"/", b"/"),
        (b"/v1/stream/a", b"/v1/stream/a"),
        (b"//x", b"//x"),
        (b"http://host/v1/stream/a", b"/v1/stream/a"),
        (b"https://user@host:8080/a%20b", b"/a%20b"),
        (b"http://host", b"/"),
        (b"http://[::1]:4437/a", b"/a"),
        (b"*", b"*"),
    ],
)
def test_origin_form(target: bytes, expected: bytes) -> None:
    assert origin_form(target) == expected


@pytest.mark.parametrize("target", [b"host:443", b"relative", b"http://", b"\xff\xff"])
def test_targets_that_have_no_path(target: bytes) -> None:
    with pytest.raises(InvalidPath):
        origin_form(target)


@pure
@given(st.binary(min_size=1))
def test_any_target_has_a_path_or_is_refused(target: bytes) -> None:
    with suppress(InvalidPath):
        assert origin_form(target)[:1] in (b"/", b"*")
