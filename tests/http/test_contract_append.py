"""POST without a producer: every answer of the contract, and which check decides."""

from __future__ import annotations

import pytest

from tests.http import contract
from tests.http.client import CLOSE, JSON, TEXT, Client, fresh, producer
from tests.http.contract import Case, rows
from tests.http.wire import chunked

NO_PRODUCER = ("Producer-Epoch", "Producer-Seq")
CLOSED = {"Stream-Closed": "true", "Stream-Next-Offset": None}

ACCEPTED = [
    Case(
        "plain append",
        contract.text,
        "POST",
        204,
        headers=TEXT,
        body=b"three",
        has={"Stream-Next-Offset": None, "Cache-Control": "no-store"},
        lacks=("Stream-Closed", "Content-Type", *NO_PRODUCER),
    ),
    Case(
        "parameters of the content type do not count",
        contract.text,
        "POST",
        204,
        headers={"Content-Type": "Text/PLAIN; charset=utf-8"},
        body=b"three",
    ),
    Case("JSON", contract.json_stream, "POST", 204, headers=JSON, body=b'{"n":2}'),
    Case("a JSON batch", contract.json_stream, "POST", 204, headers=JSON, body=b"[1,2]"),
    Case(
        "append and close",
        contract.text,
        "POST",
        204,
        headers=TEXT | CLOSE,
        body=b"three",
        has=CLOSED,
    ),
    Case("close only", contract.text, "POST", 204, headers=CLOSE, has=CLOSED),
    Case(
        "closing, true in any case",
        contract.text,
        "POST",
        204,
        headers={"Stream-Closed": "True"},
        has=CLOSED,
    ),
    Case(
        "close only, whatever the content type",
        contract.text,
        "POST",
        204,
        headers=JSON | CLOSE,
        has=CLOSED,
    ),
    Case(
        "closing again",
        contract.closed,
        "POST",
        204,
        headers=CLOSE,
        has=CLOSED,
        changes=False,
    ),
    Case(
        "another value than true does not close",
        contract.text,
        "POST",
        204,
        headers=TEXT | {"Stream-Closed": "yes"},
        body=b"three",
        lacks=("Stream-Closed",),
    ),
    Case(
        "a greater Stream-Seq",
        contract.with_seq,
        "POST",
        204,
        headers=TEXT | {"Stream-Seq": "n"},
        body=b"y",
    ),
    Case("no Stream-Seq after one", contract.with_seq, "POST", 204, headers=TEXT, body=b"y"),
]

REFUSED = [
    Case("unknown", contract.nothing, "POST", 404, "stream_not_found", headers=TEXT, body=b"x"),
    Case("deleted", contract.deleted, "POST", 404, "stream_not_found", headers=TEXT, body=b"x"),
    Case(
        "soft-deleted", contract.soft_deleted, "POST", 410, "stream_gone", headers=TEXT, body=b"x"
    ),
    Case("empty body", contract.text, "POST", 400, "empty_body", headers=TEXT),
    Case(
        "empty body, not really closing",
        contract.text,
        "POST",
        400,
        "empty_body",
        headers=TEXT | {"Stream-Closed": "false"},
    ),
    Case("no content type", contract.text, "POST", 400, "missing_content_type", body=b"x"),
    Case(
        "other content type",
        contract.text,
        "POST",
        409,
        "content_type_mismatch",
        headers=JSON,
        body=b"1",
    ),
    Case(
        "other content type while closing",
        contract.text,
        "POST",
        409,
        "content_type_mismatch",
        headers=JSON | CLOSE,
        body=b"1",
    ),
    Case("JSON: empty array", contract.json_stream, "POST", 400, "empty_body", JSON, b"[]"),
    Case(
        "the same Stream-Seq",
        contract.with_seq,
        "POST",
        409,
        "stream_seq_conflict",
        headers=TEXT | {"Stream-Seq": "m"},
        body=b"y",
    ),
    Case(
        "a lesser Stream-Seq: bytes count, not letters",
        contract.with_seq,
        "POST",
        409,
        "stream_seq_conflict",
        headers=TEXT | {"Stream-Seq": "Z"},
        body=b"y",
    ),
    Case(
        "a Stream-Seq that is not ASCII",
        contract.with_seq,
        "POST",
        400,
        "invalid_header",
        headers=TEXT | {"Stream-Seq": "\xfc"},
        body=b"y",
    ),
    Case(
        "closed",
        contract.closed,
        "POST",
        409,
        "stream_closed",
        headers=TEXT,
        body=b"x",
        has=CLOSED,
    ),
    Case(
        "closed, with data and closing",
        contract.closed,
        "POST",
        409,
        "stream_closed",
        headers=TEXT | CLOSE,
        body=b"x",
        has=CLOSED,
    ),
]

# Of two things that are wrong, the one that the contract looks at first is reported.
BAD_PRODUCER = {"Producer-Id": "p"}
STALE, GAP, NOT_AT_ZERO = producer(2, 3), producer(3, 99), producer(4, 1)
WRONG_TYPE, BAD_JSON = TEXT, b"{"
PRECEDENCE = [
    Case(name, given, "POST", status, code, headers=headers, body=body)
    for name, given, headers, body, status, code in [
        (
            "unknown before bad producer headers",
            contract.nothing,
            JSON | BAD_PRODUCER,
            b"1",
            404,
            "stream_not_found",
        ),
        (
            "gone before bad producer headers",
            contract.soft_deleted,
            TEXT | BAD_PRODUCER,
            b"1",
            410,
            "stream_gone",
        ),
        (
            "bad producer headers before closed",
            contract.closed_by_producer,
            JSON | BAD_PRODUCER,
            b"1",
            400,
            "invalid_header",
        ),
        (
            "stale epoch before closed",
            contract.closed_by_producer,
            JSON | STALE,
            b"1",
            403,
            "stale_epoch",
        ),
        (
            "stale epoch before the content type",
            contract.with_producer,
            WRONG_TYPE | STALE,
            b"1",
            403,
            "stale_epoch",
        ),
        (
            "stale epoch before an empty body",
            contract.with_producer,
            JSON | STALE,
            b"",
            403,
            "stale_epoch",
        ),
        ("closed before an empty body", contract.closed, TEXT, b"", 409, "stream_closed"),
        ("closed before a missing content type", contract.closed, {}, b"x", 409, "stream_closed"),
        ("closed before the content type", contract.closed, JSON, b"1", 409, "stream_closed"),
        ("closed before bad JSON", contract.closed_json, JSON, BAD_JSON, 409, "stream_closed"),
        (
            "closed before a gap",
            contract.closed_by_producer,
            JSON | GAP,
            b"1",
            409,
            "stream_closed",
        ),
        (
            "closed before an epoch that starts wrong",
            contract.closed_by_producer,
            JSON | NOT_AT_ZERO,
            b"1",
            409,
            "stream_closed",
        ),
        (
            "the content type before bad JSON",
            contract.json_stream,
            WRONG_TYPE,
            BAD_JSON,
            409,
            "content_type_mismatch",
        ),
        (
            "the content type before a gap",
            contract.with_producer,
            WRONG_TYPE | GAP,
            b"1",
            409,
            "content_type_mismatch",
        ),
        (
            "bad JSON before a gap",
            contract.with_producer,
            JSON | GAP,
            BAD_JSON,
            400,
            "invalid_json",
        ),
        (
            "bad JSON before an epoch that starts wrong",
            contract.with_producer,
            JSON | NOT_AT_ZERO,
            BAD_JSON,
            400,
            "invalid_json",
        ),
        (
            "a gap before Stream-Seq",
            contract.with_seq,
            TEXT | producer(0, 99) | {"Stream-Seq": "a"},
            b"x",
            409,
            "sequence_gap",
        ),
    ]
]


@pytest.mark.parametrize("case", rows(ACCEPTED))
def test_accepted(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(REFUSED))
def test_refused(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(PRECEDENCE))
def test_the_earlier_check_decides(case: Case, client: Client) -> None:
    case.run(client)


def test_appends_are_kept_in_order(client: Client) -> None:
    path = client.create(TEXT)
    offsets = [client.post(path, str(n).encode(), TEXT).next_offset for n in range(20)]
    assert offsets == sorted(set(offsets))
    assert client.get(path).body == b"".join(str(n).encode() for n in range(20))


def test_a_chunked_body_is_one_append(client: Client) -> None:
    path = client.create(TEXT)
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    end = client.post(path, chunked(b"a", b"bc", b"d"), headers).next_offset
    reply = client.get(path)
    assert (reply.body, reply.next_offset) == (b"abcd", end)


def test_an_empty_chunked_body_is_empty(client: Client) -> None:
    path = client.create(TEXT)
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    assert client.post(path, chunked(), headers).status == 400


def test_append_and_close_keeps_the_data(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.post(path, b"two", TEXT | CLOSE)
    reply = client.get(path)
    assert reply.body == b"onetwo"
    assert reply.headers["Stream-Closed"] == "true"


def test_a_refused_close_does_not_close(client: Client) -> None:
    path = client.create(JSON)
    assert client.post(path, b"{", JSON | CLOSE).status == 400
    assert "Stream-Closed" not in client.head(path).headers
    assert client.post(path, b"1", JSON).status == 204


def test_stream_seq_compares_bytes(client: Client) -> None:
    path = client.create(TEXT)
    for seq in ("1", "10", "2", "2a", "A", "a"):
        assert client.post(path, b"x", TEXT | {"Stream-Seq": seq}).status == 204, seq


def test_a_refused_stream_seq_changes_nothing(client: Client) -> None:
    path = client.create(TEXT)
    assert client.post(path, b"x", TEXT | {"Stream-Seq": "5"}).status == 204
    assert client.post(path, b"y", TEXT | {"Stream-Seq": "4"}).status == 409
    assert client.post(path, b"z", TEXT | {"Stream-Seq": "6"}).status == 204
    assert client.get(path).body == b"xz"


def test_every_byte_survives(client: Client) -> None:
    body = bytes(range(256)) * 300
    binary = {"Content-Type": "application/octet-stream"}
    path = client.create(binary, body, body[::-1])
    assert client.get(path).body == body + body[::-1]


def test_delete_then_append(client: Client) -> None:
    path = client.create(TEXT, b"old", path=fresh())
    assert client.delete(path).status == 204
    assert client.post(path, b"x", TEXT).status == 404
