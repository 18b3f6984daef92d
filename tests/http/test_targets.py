"""Request targets: which path a request is for, and which paths cannot be."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidPath
from headwater.core.paths import check_path
from headwater.http.paths import decode_path, decode_segments, origin_form
from headwater.http.routes.matching import RESOURCES, _known_control, locate
from headwater.http.routes.route import STREAM
from tests.http.client import TEXT, Client, error_code, fresh

# How fast the machine is says nothing about the code.
pure = settings(deadline=None)

INVALID = {
    "nothing": "",
    "empty segment": "a//b",
    "trailing slash": "a/",
    "leading slash": "/a",
    "dot": "a/.",
    "dots": "a/../b",
    "only dots": "..",
    "encoded dots": "a/%2e%2E/b",
    "encoded slash": "a%2Fb",
    "encoded NUL": "a%00b",
    "encoded line break": "a%0d%0aX-Injected:%20yes",
    "encoded blank": "a%20b",
    "encoded delete": "a%7Fb",
    "backslash": "a%5Cb",
    "angle brackets": "%3Cscript%3E",
    "not ASCII": "caf%C3%A9",
    "not UTF-8": "a%FFb",
    "question mark in the path": "a%3Fb",
    "hash in the path": "a%23b",
    "segment too long": "x" * 257,
    "path too long": "/".join(["x" * 100] * 11),
    "control root": "__ds/x",
    "control root alone": "__ds",
    "control root, encoded": "%5F%5Fds/x",
}
RESERVED = {
    "details": "a/_details",
    "profile": "a/_profile",
    "snapshots": "a/_snapshots",
    "a control name alone": "_details",
}
VALID = {
    "letters, digits, marks": "aZ09-_.~",
    "sub-delimiters": "a!$&'()*+,;=b",
    "colon and at": "user:1@host",
    "an encoded percent sign": "100%25",
    "hidden": ".hidden",
    "three dots": "...",
    "underscore, but no control name": "a/_other",
    "control name far from the end": "a/_details/b/c",
    "control root not in front": "a/__ds",
    "longest segment": "y" * 256,
    "many segments": "/".join("abcdefghij" * 5),
    "longest path": "/".join(["z" * 100] * 10) + "/" + "z" * 14,
}


@pytest.mark.parametrize("path", (INVALID | RESERVED).values(), ids=(INVALID | RESERVED).keys())
def test_a_stream_cannot_be_called_so(client: Client, path: str) -> None:
    reply = client.put(path, TEXT)
    assert (reply.status, error_code(reply)) == (400, "invalid_path")
    assert "X-Injected" not in reply.headers


@pytest.mark.parametrize("path", INVALID.values(), ids=INVALID.keys())
def test_there_is_no_such_stream(client: Client, path: str) -> None:
    assert client.get(path).status == 400
    assert client.head(path).status == 400
    assert client.delete(path).status == 400
    assert client.post(path, b"x", TEXT).status in (400, 404)


@pytest.mark.parametrize("path", VALID.values(), ids=VALID.keys())
def test_a_stream_can_be_called_so(client: Client, path: str) -> None:
    try:
        reply = client.put(path, TEXT, b"one")
        assert reply.status == 201
        assert reply.headers["Location"].endswith(f"/v1/stream/{path}")
        assert client.post(path, b"two", TEXT).status == 204
        assert client.get(path).body == b"onetwo"
        assert client.json(f"/v1/stream/{path}/_details")["closed"] is False
    finally:
        client.delete(path)


def test_encoded_and_plain_name_the_same_stream(client: Client) -> None:
    path = client.create(TEXT, b"one", path=fresh("name"))
    encoded = "".join(f"%{ord(char):02x}" for char in path)
    assert client.get(encoded).body == b"one"
    assert client.put(encoded, TEXT).status == 200
    assert client.post(encoded, b"two", TEXT).status == 204
    assert client.get(path).body == b"onetwo"


def test_segments_are_part_of_the_name(client: Client) -> None:
    root = fresh("tree")
    for name in (root, f"{root}/a", f"{root}/a/b", f"{root}/A"):
        client.create(TEXT, name.encode(), path=name)
    for name in (root, f"{root}/a", f"{root}/a/b", f"{root}/A"):
        assert client.get(name).body == name.encode()
    client.delete(root)
    assert client.get(f"{root}/a").status == 200


def test_absolute_form(client: Client) -> None:
    path = client.create(TEXT, b"one")
    url = f"http://{path}.example/v1/stream/{path}"
    assert client.send("GET", url).body == b"one"
    assert client.send("GET", f"{url}?offset=now").body == b""
    assert client.send("POST", url, TEXT, b"two").status == 204
    assert client.send("HEAD", url).status == 200
    assert client.send("GET", "http://x.example").status == 200
    assert client.send("GET", "http://x.example/nowhere").status == 404


def test_a_fragment_is_not_part_of_a_name(client: Client) -> None:
    path = client.create(TEXT, b"one")
    reply = client.send("GET", f"/v1/stream/{path}#top")
    assert reply.status in (200, 400)


@pytest.mark.parametrize(
    "target",
    [
        "/nowhere",
        "/v1",
        "/v1/",
        "/v1/stream",
        "/v2/stream/a",
        "/V1/stream/a",
        "//v1/stream/a",
        "/v1//stream/a",
        "/v1/streams/",
        "/v1/streamsx",
        "/healthz/",
        "/favicon.ico",
        "/.env",
        "/v1/../healthz",
    ],
)
def test_unknown_routes(client: Client, target: str) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        reply = client.send(method, target)
        assert (reply.status, error_code(reply)) == (404, "not_found")


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND", "LOCK", "PURGE"])
def test_other_methods(client: Client, method: str) -> None:
    path = client.create(TEXT, b"one")
    reply = client.send(method, f"/v1/stream/{path}")
    assert (reply.status, error_code(reply)) == (405, "method_not_allowed")
    allowed = {name.strip() for name in reply.headers["Allow"].split(",")}
    assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}


@pytest.mark.parametrize("target", ["/", "/healthz", "/readyz", "/v1/streams"])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
def test_fixed_resources_are_read_only(client: Client, target: str, method: str) -> None:
    reply = client.send(method, target)
    assert reply.status == 405
    assert {name.strip() for name in reply.headers["Allow"].split(",")} >= {"GET", "HEAD"}


LONG = b"a/_b" * 3_500
ROOTS = [b"/v1/stream/", b"/v1/stream/__ds/", b"/v1/proxy/", b"/v1/yjs/a/docs/", b"/", b"http://a/"]


@pytest.mark.parametrize("root", ROOTS, ids=repr)
def test_a_target_that_can_be_none_is_not_even_decoded(root: bytes) -> None:
    """Who sends it is not known yet, and to decode it takes longer than to send it."""
    with pytest.raises(InvalidPath):
        locate(root + b"%41" + LONG)


@pytest.mark.parametrize("size, kept", [(100, 1), (5_000, 0)])
def test_long_targets_are_not_remembered(size: int, kept: int) -> None:
    """Thousands of them, of people who need not say who they are, would fill the memory."""
    before = _known_control.cache_info().misses
    assert locate(b"/v1/stream/" + LONG[:size] + b"/_details").resource.path.endswith("/_details")
    assert _known_control.cache_info().misses - before == kept


def test_what_belongs_to_a_stream_has_a_name_that_no_stream_may_have() -> None:
    """Or a log without HTTP could make a stream that nobody can reach over HTTP."""
    for path in RESOURCES:
        name = path.removeprefix(f"{STREAM}/").split("/")[0]
        if path.startswith(f"{STREAM}/_"):
            with pytest.raises(InvalidPath):
                check_path(f"some/{name}")


# ── From the bytes on the request line to a path ─────────────────────────────────────────────


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


@pytest.mark.parametrize(
    "raw, expected",
    [
        (b"a/b", ["a", "b"]),
        (b"a%2Fb/c", ["a/b", "c"]),
        (b"%41%2fb//", ["A/b", "", ""]),
        (b"%C3%A9/%25", ["é", "%"]),
        (b"", [""]),
    ],
)
def test_decoding_segments(raw: bytes, expected: list[str]) -> None:
    assert decode_segments(raw) == expected


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
