"""PUT: every answer of the contract."""

from __future__ import annotations

import json

import pytest

from tests.http import contract
from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh
from tests.http.contract import Case, rows
from tests.http.wire import chunked

FAR = "2100-01-01T00:00:00Z"
REFUSED = ("Location", "Stream-Next-Offset")

CREATED = [
    Case(
        "the content type defaults to bytes",
        contract.nothing,
        "PUT",
        201,
        has={
            "Content-Type": "application/octet-stream",
            "Stream-Next-Offset": None,
            "Location": None,
            "Cache-Control": "no-store",
        },
        lacks=("Stream-Closed",),
    ),
    Case(
        "the content type is kept as sent",
        contract.nothing,
        "PUT",
        201,
        headers={"Content-Type": "Text/Plain; charset=UTF-8"},
        has={"Content-Type": "Text/Plain; charset=UTF-8", "Location": None},
    ),
    Case("with a first append", contract.nothing, "PUT", 201, headers=TEXT, body=b"first"),
    Case(
        "created closed",
        contract.nothing,
        "PUT",
        201,
        headers=TEXT | {"Stream-Closed": "TRUE"},
        body=b"all of it",
        has={"Stream-Closed": "true"},
    ),
    Case(
        "another value than true does not close",
        contract.nothing,
        "PUT",
        201,
        headers=TEXT | {"Stream-Closed": "1"},
        lacks=("Stream-Closed",),
    ),
    Case("JSON with no messages", contract.nothing, "PUT", 201, headers=JSON, body=b" [ ] "),
    Case("a TTL", contract.nothing, "PUT", 201, headers={"Stream-TTL": "60"}),
    Case("an expiry", contract.nothing, "PUT", 201, headers={"Stream-Expires-At": FAR}),
    Case(
        "an expiry with a zone and a fraction",
        contract.nothing,
        "PUT",
        201,
        headers={"Stream-Expires-At": "2100-01-01T00:00:00.123456789+05:30"},
    ),
    *(
        Case(
            f"the edge of the calendar, {edge}",
            contract.nothing,
            "PUT",
            201,
            headers={"Stream-Expires-At": edge},
        )
        for edge in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
    ),
    Case("again where one was deleted", contract.deleted, "PUT", 201, headers=JSON),
]

CONFIRMED = [
    Case(
        "the same again",
        contract.text,
        "PUT",
        200,
        headers=TEXT,
        has={"Content-Type": "text/plain", "Stream-Next-Offset": None},
        lacks=("Location", "Stream-Closed"),
        changes=False,
    ),
    Case(
        "a body is no append the second time",
        contract.text,
        "PUT",
        200,
        headers=TEXT,
        body=b"more",
        changes=False,
    ),
    Case(
        "case and parameters of the content type do not count",
        contract.text,
        "PUT",
        200,
        headers={"Content-Type": "TEXT/Plain;charset=utf-8"},
        changes=False,
    ),
    Case(
        "a closed one, asked for as closed",
        contract.closed,
        "PUT",
        200,
        headers=TEXT | CLOSE,
        has={"Stream-Closed": "true"},
        changes=False,
    ),
    Case(
        "the same TTL",
        contract.with_ttl,
        "PUT",
        200,
        headers=TEXT | {"Stream-TTL": "3600"},
        changes=False,
    ),
    Case(
        "the same instant, written differently",
        contract.with_expiry,
        "PUT",
        200,
        headers=TEXT | {"Stream-Expires-At": "2100-01-01T01:00:00.000+01:00"},
        changes=False,
    ),
]

CONFLICTS = [
    Case(name, given, "PUT", 409, "config_conflict", headers=headers, lacks=REFUSED)
    for name, given, headers in [
        ("another content type", contract.text, JSON),
        ("no content type where there is one", contract.text, {}),
        ("a TTL where there is none", contract.text, TEXT | {"Stream-TTL": "60"}),
        ("another TTL", contract.with_ttl, TEXT | {"Stream-TTL": "61"}),
        ("no TTL where there is one", contract.with_ttl, TEXT),
        ("an expiry where there is a TTL", contract.with_ttl, TEXT | {"Stream-Expires-At": FAR}),
        (
            "another expiry",
            contract.with_expiry,
            TEXT | {"Stream-Expires-At": "2100-01-01T00:00:01Z"},
        ),
        ("closed where it is open", contract.text, TEXT | CLOSE),
        ("open where it is closed", contract.closed, TEXT),
    ]
]
CONFLICTS.append(
    Case("the path is held by forks", contract.soft_deleted, "PUT", 409, "path_reserved")
)

MALFORMED_TTLS = ["", "-1", "+1", "01", "00", "1.0", "1e3", "0x10", "abc", "1 2", "9" * 30]
MALFORMED_EXPIRIES = [
    "",
    "tomorrow",
    "2100-01-01",
    "2100-01-01T00:00:00",
    "2100-13-01T00:00:00Z",
    "2100-02-30T00:00:00Z",
    "2100-01-01T25:00:00Z",
    "2100-01-01T00:00:00+99:00",
    "4102444800",
]
REFUSALS = [
    *(
        Case(
            f"TTL {value[:8]!r}",
            contract.nothing,
            "PUT",
            400,
            "invalid_header",
            headers={"Stream-TTL": value},
        )
        for value in MALFORMED_TTLS
    ),
    *(
        Case(
            f"expiry {value!r}",
            contract.nothing,
            "PUT",
            400,
            "invalid_header",
            headers={"Stream-Expires-At": value},
        )
        for value in MALFORMED_EXPIRIES
    ),
    Case(
        "TTL and expiry at once",
        contract.nothing,
        "PUT",
        400,
        "invalid_header",
        headers={"Stream-TTL": "60", "Stream-Expires-At": FAR},
    ),
    Case(
        "a content type that is none",
        contract.nothing,
        "PUT",
        400,
        "invalid_header",
        headers={"Content-Type": "plain"},
    ),
    Case("bad JSON", contract.nothing, "PUT", 400, "invalid_json", headers=JSON, body=b"{"),
]


@pytest.mark.parametrize("case", rows(CREATED))
def test_created(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(CONFIRMED))
def test_confirmed(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(CONFLICTS))
def test_conflict(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(REFUSALS))
def test_refused(case: Case, client: Client) -> None:
    case.run(client)


def test_location_leads_to_the_stream(client: Client) -> None:
    path = fresh("a/b")
    reply = client.put(path, TEXT)
    # The host is the one that the client called; our client says it without the port.
    assert reply.headers["Location"] == f"http://127.0.0.1/v1/stream/{path}"


def test_location_for_a_request_by_absolute_url(client: Client) -> None:
    url = f"http://127.0.0.1/v1/stream/{fresh()}"
    assert client.send("PUT", url, TEXT).headers["Location"] == url


def test_a_body_is_the_first_append(client: Client) -> None:
    path = fresh()
    created = client.put(path, TEXT, b"first")
    assert created.next_offset == client.head(path).next_offset
    assert client.get(path).body == b"first"


def test_a_chunked_body_counts(client: Client) -> None:
    path = fresh()
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    assert client.put(path, headers, chunked(b"fi", b"rst")).status == 201
    assert client.get(path).body == b"first"


def test_a_json_body_is_taken_apart(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON, b"[1, [2], 3]").status == 201
    assert json.loads(client.get(path).body) == [1, [2], 3]


def test_created_closed_with_the_whole_content(client: Client) -> None:
    path = fresh()
    assert client.put(path, TEXT | CLOSE, b"all of it").status == 201
    reply = client.get(path)
    assert reply.body == b"all of it"
    assert reply.headers["Stream-Closed"] == "true"
    assert error_code(client.post(path, b"more", TEXT)) == "stream_closed"


def test_created_closed_and_empty(client: Client) -> None:
    path = fresh()
    assert client.put(path, TEXT | CLOSE).headers["Stream-Closed"] == "true"
    reply = client.get(path)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Stream-Closed"] == "true"


def test_a_refused_create_leaves_nothing(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON, b"nonsense").status == 400
    assert client.get(path).status == 404
