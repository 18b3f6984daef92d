"""Requests as they are built, and answers as they are understood."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import errors
from headwater.client.protocol.addresses import stream_path, stream_root, stream_url
from headwater.client.protocol.refusals import failure, retry_after_s
from headwater.client.protocol.streams import (
    ProducerTag,
    Request,
    Response,
    append_request,
    check_headers,
    create_request,
    fork_request,
    merged,
    producer_receipt,
    read_request,
    stream_info,
)
from headwater.core.content_types import is_json
from headwater.core.payloads import encode_append, encode_batches, encode_body, encode_message

URL = "http://localhost:4437/v1/stream/orders"
POST = Request("POST", URL)


# --- Addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["localhost:4437", "ftp://x", "http://", "http://x?a=1", ""])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        stream_root(url)


@pytest.mark.parametrize("path", ["", "/", "a//b", "a/../b", "."])
def test_a_path_that_is_none(path: str) -> None:
    with pytest.raises(ValueError, match="not a stream path"):
        stream_url("http://x", path)


def test_paths_are_escaped_by_segment() -> None:
    assert stream_url("http://x", "/a b/c%d/é?#") == "http://x/a%20b/c%25d/%C3%A9%3F%23"
    assert stream_url("http://x", "t~1:2@x/a+b") == "http://x/t~1:2@x/a+b"


def test_a_stream_at_any_address() -> None:
    url = "https://host:8443/any/path"
    assert stream_url("http://x/v1/stream", url) == url
    assert stream_path("http://x/v1/stream", url) == "any/path"
    assert stream_path("http://x/v1/stream", "http://x/v1/stream/a%20b/c") == "a b/c"
    for wrong in ("https://host", "https://host/", "https://host/a?b=c", "https:///a"):
        with pytest.raises(ValueError, match="address"):
            stream_url("http://x", wrong)


def test_headers_are_merged_whatever_their_case() -> None:
    request = append_request(URL, b"x", content_type="a/b", headers={"content-type": "c/d"})
    assert request.headers == {"content-type": "c/d"}
    assert merged({"A": "1", "b": "2"}, None, {"a": "3"}) == {"a": "3", "b": "2"}


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "é", "\x00", " a", "a ", "a\x7f"])
def test_a_header_that_cannot_be_sent_is_named_and_not_shown(value: str) -> None:
    with pytest.raises(ValueError, match="header X-Secret") as caught:
        check_headers({"X-Secret": value})
    assert value not in str(caught.value)
    with pytest.raises(ValueError, match="not the name"):
        check_headers({"X Secret": "a"})
    check_headers({"A": "", "B": "a b\tc"})


# --- Requests ------------------------------------------------------------------------------------


def test_create() -> None:
    request = create_request(URL, content_type="text/plain", ttl_s=60, closed=True, body=b"x")
    assert (request.method, request.body, request.repeatable) == ("PUT", b"x", True)
    assert request.headers == {
        "Content-Type": "text/plain",
        "Stream-TTL": "60",
        "Stream-Closed": "true",
    }


def test_create_with_retention() -> None:
    request = create_request(URL, retention_s=60, retention_bytes=1_000)
    assert request.headers == {
        "Stream-Retention-Seconds": "60",
        "Stream-Retention-Bytes": "1000",
    }


def test_create_with_two_ends_of_life() -> None:
    with pytest.raises(ValueError, match="not both"):
        create_request(URL, ttl_s=1, expires_at="2030-01-01T00:00:00Z")


def test_fork_names_its_source_by_path() -> None:
    created = create_request("http://x/v1/stream/b", ttl_s=60)
    request = fork_request(created, "http://x/v1/stream/a", offset="1_2")
    assert request.url == "http://x/v1/stream/b"
    assert request.headers == {
        "Stream-TTL": "60",
        "Stream-Forked-From": "/v1/stream/a",
        "Stream-Fork-Offset": "1_2",
    }


def test_a_plain_append_is_the_only_request_that_must_not_be_repeated() -> None:
    tag = ProducerTag("p", 1, 2)
    assert not append_request(URL, b"x", content_type="text/plain").repeatable
    assert append_request(URL, b"", content_type=None, close=True).repeatable
    produced = append_request(URL, b"x", content_type="text/plain", producer=tag)
    assert produced.repeatable
    assert produced.headers["Producer-Id"] == "p"
    assert produced.headers["Producer-Epoch"] == "1"
    assert produced.headers["Producer-Seq"] == "2"


def test_a_close_without_data_names_no_type() -> None:
    request = append_request(URL, b"", content_type="text/plain", close=True)
    assert request.headers == {"Stream-Closed": "true"}


def test_reads_say_how_long_they_may_take() -> None:
    assert read_request(URL, offset="-1").patience == "answer"
    long_poll = read_request(URL, offset="1_2", live="long-poll", cursor="7")
    assert long_poll.params == {"offset": "1_2", "live": "long-poll", "cursor": "7"}
    assert long_poll.patience == "long-poll"
    assert read_request(URL, offset="1_2", live="sse").patience == "sse"
    assert "cursor" not in read_request(URL, offset="1_2", cursor="7").params


# --- Bodies --------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def as_the_server_reads(body: bytes) -> list[Any]:
    """One level of a top-level array is taken apart into messages."""
    value = msgspec.json.decode(body)
    return value if isinstance(value, list) else [value]


@given(st.lists(JSON_VALUES, min_size=1, max_size=5))
def test_every_json_value_is_one_message(values: list[Any]) -> None:
    messages = [encode_message(value, "application/json") for value in values]
    assert as_the_server_reads(encode_body(messages, "application/json")) == values


@given(JSON_VALUES)
def test_an_append_means_what_a_post_of_it_means(value: Any) -> None:
    """In the client, in the embedded log and over HTTP."""
    posted = msgspec.json.encode(value)
    if value == []:
        with pytest.raises(ValueError, match="nothing to append"):
            encode_append(value, "application/json")
        return
    for data in (value, posted, b" " + posted + b"\n"):
        body = encode_body([encode_append(data, "application/json")], "application/json")
        assert as_the_server_reads(body) == as_the_server_reads(posted)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=9), st.integers(1, 20))
def test_batches_keep_order_and_size(messages: list[bytes], limit: int) -> None:
    batches = list(encode_batches(messages, "text/plain", limit))
    assert [message for batch in batches for message in batch] == messages
    assert all(len(batch) == 1 or sum(map(len, batch)) <= limit for batch in batches)


def test_bytes_are_sent_as_they_are() -> None:
    assert encode_message(b'{"a":1.0}', "application/json") == b'{"a":1.0}'
    assert encode_body([b" [1]"], "application/json") == b"[ [1]]"
    assert encode_message(memoryview(b"x"), "text/plain") == b"x"
    assert encode_message("é", "text/plain") == b"\xc3\xa9"
    with pytest.raises(TypeError, match="takes bytes or str"):
        encode_message({"a": 1}, "text/plain")


def test_json_is_recognised_by_its_media_type() -> None:
    assert is_json("Application/JSON; charset=utf-8")
    assert not is_json("application/jsonl")
    assert not is_json(None)


# --- Answers -------------------------------------------------------------------------------------


def error_for(
    status: int, headers: dict[str, str] | None = None, body: bytes = b"", request: Request = POST
) -> errors.ResponseError:
    error = failure(request, Response(status, headers or {}, body), now=0.0)
    assert error is not None
    return error


@pytest.mark.parametrize(
    "status, headers, kind",
    [
        (400, {}, errors.BadRequest),
        (401, {}, errors.Unauthorized),
        (403, {}, errors.Forbidden),
        (403, {"producer-epoch": "4"}, errors.StaleEpoch),
        (404, {}, errors.StreamNotFound),
        (409, {}, errors.ConfigConflict),
        (409, {"stream-closed": "true"}, errors.StreamClosed),
        (409, {"producer-expected-seq": "1"}, errors.SequenceConflict),
        (410, {}, errors.StreamGone),
        (413, {}, errors.TooLarge),
        (418, {}, errors.BadRequest),
        (429, {}, errors.RateLimited),
        (500, {}, errors.ServerUnavailable),
        (503, {}, errors.ServerUnavailable),
        (304, {}, errors.UnexpectedAnswer),
    ],
)
def test_each_status_has_its_own_error(
    status: int, headers: dict[str, str], kind: type[errors.ResponseError]
) -> None:
    error = error_for(status, headers)
    assert type(error) is kind
    assert error.status == status


@pytest.mark.parametrize(
    "code, kind",
    [
        ("config_conflict", errors.ConfigConflict),
        ("content_type_mismatch", errors.ConfigConflict),
        ("stream_seq_conflict", errors.SequenceConflict),
        ("source_deleted", errors.Conflict),
    ],
)
def test_a_stable_code_decides_between_conflicts(
    code: str, kind: type[errors.ResponseError]
) -> None:
    body = msgspec.json.encode({"error": {"code": code, "message": "do this"}})
    error = error_for(409, {"content-type": "application/json"}, body)
    assert (type(error), error.code, error.message) == (kind, code, "do this")
    assert str(error) == f"/v1/stream/orders: do this (409 {code})"


def test_without_a_code_a_conflict_with_stream_seq_is_about_the_sequence() -> None:
    request = append_request(URL, b"x", content_type="text/plain", seq="b")
    assert isinstance(error_for(409, request=request), errors.SequenceConflict)


def test_errors_carry_their_data() -> None:
    stale = error_for(403, {"producer-epoch": "4"})
    assert isinstance(stale, errors.StaleEpoch)
    assert stale.current_epoch == 4
    gap = error_for(409, {"producer-expected-seq": "1", "producer-received-seq": "3"})
    assert isinstance(gap, errors.SequenceConflict)
    assert (gap.expected_seq, gap.received_seq) == (1, 3)
    closed = error_for(409, {"stream-closed": "TRUE", "stream-next-offset": "1_2"})
    assert isinstance(closed, errors.StreamClosed)
    assert closed.next_offset == "1_2"
    assert error_for(429, {"retry-after": "7"}).retry_after_s == 7.0


@pytest.mark.parametrize(
    "content_type, body",
    [
        ("application/json", b"not json"),
        ("application/json", b"[1]"),
        ("application/json", b'{"error": 5}'),
        ("application/json", b'{"error": {"code": 5}}'),
        ("text/html", b"<h1>Bad gateway</h1>"),
        ("", b"\xff\xfe"),
    ],
)
def test_any_error_body_will_do(content_type: str, body: bytes) -> None:
    error = error_for(502, {"content-type": content_type}, body)
    assert error.code is None
    assert error.message


def test_plain_text_is_the_message() -> None:
    error = error_for(400, {"content-type": "text/plain"}, b"Empty body")
    assert error.message == "Empty body"


def test_whether_a_failed_write_may_have_happened() -> None:
    body = msgspec.json.encode({"error": {"code": "storage_unavailable", "message": "m"}})
    json = {"content-type": "application/json"}
    assert error_for(500, json, body).in_doubt
    assert error_for(503).in_doubt, "anything in front of the server may have said that"
    assert not error_for(503, json, body).in_doubt
    assert not error_for(429).in_doubt
    unknown = msgspec.json.encode({"error": {"code": "outcome_unknown", "message": "m"}})
    assert error_for(503, json, unknown).in_doubt, "the server says that it does not know"


@pytest.mark.parametrize(
    "text, seconds",
    [
        (None, None),
        ("", None),
        ("12", 12.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-3", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert retry_after_s(text, now=10.0) == seconds


def test_stream_info() -> None:
    headers = {"content-type": "text/plain", "stream-next-offset": "1_2", "stream-ttl": "60"}
    info = stream_info(Response(200, headers))
    assert (info.content_type, info.next_offset, info.ttl_s) == ("text/plain", "1_2", 60)
    assert not info.closed
    assert stream_info(Response(200, {"stream-ttl": "junk"})).ttl_s is None


TAG = ProducerTag("p", epoch=2, seq=7)


@pytest.mark.parametrize(
    "status, headers, duplicate",
    [
        (200, {"producer-epoch": "2", "producer-seq": "7"}, False),
        (204, {"producer-epoch": "2", "producer-seq": "9"}, True),
        (200, {"stream-next-offset": "1_2"}, False),
        (204, {}, True),
        (204, {"producer-epoch": "2", "producer-seq": "7", "stream-closed": "true"}, False),
    ],
)
def test_a_producer_learns_whether_it_was_new(
    status: int, headers: dict[str, str], duplicate: bool
) -> None:
    receipt = producer_receipt(Response(status, headers), TAG)
    assert receipt.duplicate is duplicate


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-epoch": "2", "producer-seq": "6"},
        {"producer-epoch": "1", "producer-seq": "7"},
        {"producer-epoch": "2", "producer-seq": "x"},
    ],
)
def test_an_answer_to_another_append_is_no_receipt(headers: dict[str, str]) -> None:
    with pytest.raises(errors.UnexpectedAnswer) as caught:
        producer_receipt(Response(200, headers), TAG)
    assert caught.value.in_doubt
