"""Reads in pages: a server whose pages hold 64 bytes."""

from __future__ import annotations

import json

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client
from tests.http.events import unpack
from tests.http.wire import Reply

BINARY = {"Content-Type": "application/octet-stream"}


def pages(client: Client, path: str, offset: str = "-1") -> list[Reply]:
    found = []
    while True:
        page = client.get(path, f"offset={offset}")
        found.append(page)
        if page.headers.get("Stream-Up-To-Date") == "true":
            return found
        offset = page.next_offset


def test_pages_hold_whole_appends(hasty: Client) -> None:
    bodies = [bytes([65 + n]) * 25 for n in range(7)]
    path = hasty.create(TEXT, *bodies)
    found = pages(hasty, path)
    assert [page.body for page in found] == [
        b"".join(bodies[0:2]),
        b"".join(bodies[2:4]),
        b"".join(bodies[4:6]),
        bodies[6],
    ]
    tokens = [page.next_offset for page in found]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] == hasty.head(path).next_offset


def test_a_page_holds_exactly_the_limit(hasty: Client) -> None:
    path = hasty.create(TEXT, b"a" * 32, b"b" * 32, b"c")
    assert [page.body for page in pages(hasty, path)] == [b"a" * 32 + b"b" * 32, b"c"]


def test_an_append_larger_than_a_page_is_a_page(hasty: Client) -> None:
    path = hasty.create(TEXT, b"a", b"b" * 1000, b"c")
    assert [page.body for page in pages(hasty, path)] == [b"a", b"b" * 1000, b"c"]


def test_only_the_last_page_is_up_to_date_and_closed(hasty: Client) -> None:
    path = hasty.create(TEXT, *[b"x" * 40] * 4)
    hasty.close(path)
    *before, last = pages(hasty, path)
    assert len(before) == 3
    for page in before:
        assert "Stream-Up-To-Date" not in page.headers
        assert "Stream-Closed" not in page.headers
        assert page.headers["ETag"][-3:] != ':c"'
    assert last.headers["Stream-Closed"] == "true"


def test_each_page_of_json_is_an_array(hasty: Client) -> None:
    values = [{"n": n, "text": "x" * 20} for n in range(20)]
    path = hasty.create(JSON, *[json.dumps(value).encode() for value in values])
    found = pages(hasty, path)
    assert len(found) > 1
    assert [value for page in found for value in json.loads(page.body)] == values


def test_a_reader_that_follows_sees_everything_once(hasty: Client) -> None:
    path = hasty.create(TEXT)
    seen, offset, expected = b"", "-1", b""
    for n in range(30):
        body = b"%d;" % n * 10
        hasty.post(path, body, TEXT)
        expected += body
        page = hasty.get(path, f"offset={offset}")
        seen += page.body
        offset = page.next_offset
    seen += b"".join(page.body for page in pages(hasty, path, offset))
    assert seen == expected


def test_a_long_poll_with_data_is_a_page(hasty: Client) -> None:
    path = hasty.create(TEXT, b"a" * 60, b"b" * 60)
    reply = hasty.get(path, "offset=-1&live=long-poll")
    assert reply.body == b"a" * 60
    assert "Stream-Up-To-Date" not in reply.headers
    assert "Stream-Cursor" in reply.headers


@pytest.mark.parametrize("headers", [TEXT, BINARY], ids=["text", "binary"])
def test_events_come_in_chunks(hasty: Client, headers: dict[str, str]) -> None:
    bodies = [bytes([65 + n]) * 40 for n in range(4)]
    path = hasty.create(headers, *bodies)
    tokens = []
    data = []
    with hasty.events(path) as events:
        for last in (False, False, False, True):
            part, control = events.pair()
            data.append(part)
            tokens.append(control["streamNextOffset"])
            assert control.get("upToDate", False) is last
    assert tokens == sorted(set(tokens))
    whole = unpack(data) if headers is BINARY else "".join(data).encode()
    assert whole == b"".join(bodies)


def test_a_batch_larger_than_a_chunk_arrives_live_in_order(hasty: Client) -> None:
    path = hasty.create(TEXT)
    with hasty.events(path) as events:
        assert events.expect("control").json["upToDate"] is True
        bodies = [bytes([65 + n]) * 50 for n in range(6)]
        for body in bodies:
            hasty.post(path, body, TEXT)
        hasty.post(path, headers=CLOSE)
        rest = events.rest()
    assert "".join(event.data for event in rest if event.kind == "data").encode() == b"".join(
        bodies
    )
    assert rest[-1].json["streamClosed"] is True


def test_a_fork_is_read_across_the_seam(hasty: Client) -> None:
    source = hasty.create(TEXT, *[b"s" * 30] * 5)
    fork = hasty.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{source}"}, *[b"f" * 30] * 5)
    found = pages(hasty, fork)
    assert b"".join(page.body for page in found) == b"s" * 150 + b"f" * 150
    assert all(0 < len(page.body) <= 64 for page in found)
