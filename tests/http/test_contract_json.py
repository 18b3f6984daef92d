"""JSON mode: what is accepted, what is not, and that bytes are kept as sent."""

from __future__ import annotations

import json

import pytest

from tests.http.client import JSON, Client, error_code, fresh
from tests.support.nesting import TOO_DEEP

MALFORMED = [
    b"{",
    b"}",
    b"[1",
    b"[1,]",
    b"[1 2]",
    b'{"a":1,}',
    b'{"a" 1}',
    b"{a:1}",
    b"{1:2}",
    b"1 2",
    b"[1]x",
    b"1,2",
    b" ",
    b"tru",
    b"True",
    b"None",
    b"undefined",
    b"NaN",
    b"[NaN]",
    b"Infinity",
    b"-Infinity",
    b"-",
    b"+1",
    b"01",
    b"-01",
    b"1.",
    b".5",
    b"1e",
    b"0x1",
    b"'a'",
    b'"a',
    b'"\\x"',
    b'"\\u12"',
    b'"a\nb"',
    b'"a\tb"',
    b'"\x00"',
    b"\x00",
    b"\x0c1",
    b"1//2",
    b"/**/1",
    b"\xef\xbb\xbf1",
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xed\xa0\x80"',
    "1".encode("utf-16"),
    b"[" * TOO_DEEP,
    b"[" * TOO_DEEP + b"]" * TOO_DEEP,
    b'{"a":' * TOO_DEEP + b"1" + b"}" * TOO_DEEP,
]

# Each of these comes back byte for byte.
KEPT = [
    b"0",
    b"-0",
    b"1.0",
    b"1E+2",
    b"123456789012345678901234567890.000000000000000000001",
    b"1e999",
    b"null",
    b"true",
    b"false",
    b'""',
    b'"\\u00e9\\/\\b"',
    '"é\u2028😀\x7f"'.encode(),
    b"{}",
    b'{"b":1, "a":2}',
    b'{"a":1,"a":2}',
    b'{ "nested" : [ [ ] , { } ] }',
    b'{\n  "pretty": true\n}',
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:24]))
def test_malformed_bodies_are_refused(client: Client, body: bytes) -> None:
    path = client.create(JSON)
    reply = client.post(path, body, JSON)
    assert (reply.status, error_code(reply)) == (400, "invalid_json")
    assert client.get(path).body == b"[]"
    created = client.put(fresh(), JSON, body)
    assert (created.status, error_code(created)) == (400, "invalid_json")


@pytest.mark.parametrize("message", KEPT, ids=repr)
def test_bytes_are_kept_as_sent(client: Client, message: bytes) -> None:
    path = client.create(JSON, message, b"[" + message + b" , " + message + b"]")
    assert client.get(path).body == b"[" + b",".join([message] * 3) + b"]"


def test_half_a_surrogate_pair_is_refused(client: Client) -> None:
    """It stands for no character, so readers could not make a string of it."""
    path = client.create(JSON)
    answer = client.post(path, rb'"\ud83d"', JSON)
    assert answer.status == 400
    assert b"surrogate" in answer.body
    assert client.get(path).body == b"[]"


def test_one_level_of_an_array_is_flattened(client: Client) -> None:
    path = client.create(JSON, b"[[1,2],[],[[3]]]", b"[ 4 ]", b"5")
    assert json.loads(client.get(path).body) == [[1, 2], [], [[3]], 4, 5]


@pytest.mark.parametrize("body", [b"[]", b" [ ] ", b"[\n]"])
def test_an_empty_array_is_no_append(client: Client, body: bytes) -> None:
    path = client.create(JSON)
    assert client.post(path, body, JSON).status == 400


def test_a_stream_without_messages_is_an_empty_array(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON, b"[]").status == 201
    assert client.get(path).body == b"[]"
    assert client.get(path, "offset=now").body == b"[]"


def test_a_read_from_the_tail_is_an_empty_array(client: Client) -> None:
    path = client.create(JSON, b"1")
    tail = client.head(path).next_offset
    assert client.get(path, f"offset={tail}").body == b"[]"


def test_parameters_do_not_switch_json_mode_off(client: Client) -> None:
    path = client.create({"Content-Type": "Application/JSON; charset=utf-8"}, b"[1,2]")
    assert client.get(path).body == b"[1,2]"


def test_related_types_are_bytes(client: Client) -> None:
    content_type = {"Content-Type": "application/problem+json"}
    path = client.create(content_type, b"[1,", b"2")
    assert client.get(path).body == b"[1,2"
