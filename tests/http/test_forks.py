"""Forks: what they inherit, what they refuse, and what is left of a source that is deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh, producer
from tests.http.wire import Reply

START = "0000000000000000_0000000000000000"


def fork_of(
    source: str, offset: str | None = None, sub_offset: int | str | None = None
) -> dict[str, str]:
    headers = {"Stream-Forked-From": f"/v1/stream/{source}"}
    if offset is not None:
        headers["Stream-Fork-Offset"] = offset
    if sub_offset is not None:
        headers["Stream-Fork-Sub-Offset"] = str(sub_offset)
    return headers


def fork(client: Client, source: str, *where: str | int) -> str:
    """A new fork; returns its path."""
    path = fresh("fork")
    offset = str(where[0]) if where else None
    sub_offset = where[1] if len(where) > 1 else None
    reply = client.put(path, fork_of(source, offset, sub_offset))
    assert reply.status == 201, reply
    return path


def text_stream(client: Client) -> tuple[str, list[str]]:
    """A stream of one, two, three, and the offsets before and after each."""
    path = client.create(TEXT)
    offsets = [client.head(path).next_offset]
    offsets += [client.post(path, body, TEXT).next_offset for body in (b"one", b"two", b"three")]
    return path, offsets


# ── What a fork is ───────────────────────────────────────────────────────────────────────────


def test_a_fork_at_the_tail(client: Client) -> None:
    source, offsets = text_stream(client)
    path = fresh()
    reply = client.put(path, fork_of(source))
    assert reply.status == 201
    assert reply.headers["Content-Type"] == "text/plain"
    assert reply.headers["Location"].endswith(path)
    assert reply.next_offset == offsets[-1]
    assert client.get(path).body == b"onetwothree"


@pytest.mark.parametrize(
    "index, content", list(enumerate([b"", b"one", b"onetwo", b"onetwothree"]))
)
def test_a_fork_at_an_offset(client: Client, index: int, content: bytes) -> None:
    source, offsets = text_stream(client)
    path = fork(client, source, offsets[index])
    assert client.get(path).body == content
    client.post(path, b"+", TEXT)
    assert client.get(path).body == content + b"+"
    assert client.get(source).body == b"onetwothree"


def test_a_fork_of_the_named_positions(client: Client) -> None:
    source, _ = text_stream(client)
    assert client.get(fork(client, source, "-1")).body == b""
    assert client.get(fork(client, source, "now")).body == b"onetwothree"


@pytest.mark.parametrize("count, content", [(0, b"one"), (1, b"onet"), (3, b"onetwo")])
def test_a_sub_offset_counts_bytes(client: Client, count: int, content: bytes) -> None:
    source, offsets = text_stream(client)
    assert client.get(fork(client, source, offsets[1], count)).body == content


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_sub_offset_counts_messages(client: Client, count: int) -> None:
    source = client.create(JSON, b"[1]")
    offset = client.head(source).next_offset
    client.post(source, b'[{"a": 2}, [3], "4"]', JSON)
    path = fork(client, source, offset, count)
    assert json.loads(client.get(path).body) == [1, {"a": 2}, [3], "4"][: 1 + count]
    client.post(path, b"5", JSON)
    assert json.loads(client.get(path).body)[-1] == 5


def test_offsets_are_shared(client: Client) -> None:
    source, offsets = text_stream(client)
    path = fork(client, source)
    end = client.post(path, b"mine", TEXT).next_offset
    assert end > offsets[-1]
    for offset, rest in zip(offsets, [b"onetwothree", b"twothree", b"three", b""], strict=True):
        assert client.get(path, f"offset={offset}").body == rest + b"mine"
    assert error_code(client.get(source, f"offset={end}")) == "unknown_offset"


def test_each_goes_its_own_way(client: Client) -> None:
    source = client.create(TEXT, b"shared;")
    path = fork(client, source)
    client.post(source, b"source", TEXT)
    client.post(path, b"fork", TEXT)
    assert client.get(source).body == b"shared;source"
    assert client.get(path).body == b"shared;fork"
    client.close(source)
    assert "Stream-Closed" not in client.head(path).headers


def test_forks_of_forks(client: Client) -> None:
    path = client.create(TEXT, b"0")
    expected = b"0"
    for depth in range(1, 8):
        path = fork(client, path)
        body = str(depth).encode()
        client.post(path, body, TEXT)
        expected += body
    assert client.get(path).body == expected


def test_a_fork_of_a_fork_inside_what_it_inherits(client: Client) -> None:
    source, offsets = text_stream(client)
    first = fork(client, source, offsets[2])
    client.post(first, b"mine", TEXT)
    second = fork(client, first, offsets[1], 2)
    assert client.get(second).body == b"onetw"
    third = fork(client, second, offsets[1], 1)
    assert client.get(third).body == b"onet"
    # What the second inherits of an append ends where it was cut.
    assert client.put(fresh(), fork_of(second, offsets[1], 3)).status == 400


def test_a_closed_source_has_an_open_fork(client: Client) -> None:
    source = client.create(TEXT, b"one")
    client.close(source)
    path = fork(client, source)
    assert "Stream-Closed" not in client.head(path).headers
    assert client.post(path, b"two", TEXT).status == 204


def test_a_fork_can_be_created_closed_and_with_data(client: Client) -> None:
    source = client.create(TEXT, b"one")
    path = fresh()
    reply = client.put(path, TEXT | CLOSE | fork_of(source), b"two")
    assert reply.headers["Stream-Closed"] == "true"
    assert client.get(path).body == b"onetwo"


def test_producers_and_sequences_start_afresh(client: Client) -> None:
    source = client.create(TEXT)
    client.post(source, b"one", TEXT | producer(5, 0) | {"Stream-Seq": "z"})
    path = fork(client, source)
    assert client.post(path, b"two", TEXT | producer(0, 0) | {"Stream-Seq": "a"}).status == 200


def test_no_response_shows_where_a_fork_comes_from(client: Client) -> None:
    # The client checks that for every response; this only makes all kinds of them.
    source, offsets = text_stream(client)
    path = fork(client, source, offsets[1])
    assert client.get(path).status == 200
    assert client.head(path).status == 200
    assert client.put(path, fork_of(source, offsets[1])).status == 200
    assert client.post(path, b"x", TEXT).status == 204
    with client.events(path) as events:
        assert events.pair()[0] == "onex"
    assert client.delete(path).status == 204


# ── Asking again ─────────────────────────────────────────────────────────────────────────────


def test_the_same_fork_again(client: Client) -> None:
    source, offsets = text_stream(client)
    headers = fork_of(source, offsets[1], 1)
    path = fresh()
    assert client.put(path, headers).status == 201
    assert client.put(path, headers).status == 200
    client.post(path, b"more", TEXT)
    assert client.put(path, TEXT | headers).status == 200


def test_the_same_fork_again_when_its_source_is_deleted(client: Client) -> None:
    source, _ = text_stream(client)
    path = fork(client, source)
    client.delete(source)
    assert client.put(path, fork_of(source)).status == 200


def test_another_fork_at_the_path(client: Client) -> None:
    source, offsets = text_stream(client)
    other = client.create(TEXT, b"other")
    path = fresh()
    client.put(path, fork_of(source, offsets[1], 1))
    for headers in (
        fork_of(source),
        fork_of(source, offsets[2], 1),
        fork_of(source, offsets[1], 2),
        fork_of(source, offsets[1]),
        fork_of(other),
        TEXT,
        {**fork_of(source, offsets[1], 1), **JSON},
        fork_of(source, offsets[1], 1) | CLOSE,
        fork_of(source, offsets[1], 1) | {"Stream-TTL": "60"},
    ):
        assert client.put(path, headers).status == 409, headers
    assert client.put(source, fork_of(other)).status == 409


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────


def refused(client: Client, headers: Mapping[str, str]) -> Reply:
    """A refused fork leaves nothing behind."""
    path = fresh("refused")
    reply = client.put(path, headers)
    assert client.get(path).status == 404
    return reply


def test_an_unknown_source(client: Client) -> None:
    assert refused(client, fork_of("nowhere")).status == 404


def test_a_stream_is_no_source_of_itself(client: Client) -> None:
    path = fresh()
    assert client.put(path, fork_of(path)).status == 404


NO_PATHS = ["", "/", "/v1/stream/", "//x", "..", "/v1/stream/../x", "a//b", "a%2Fb", "%FF", "\xe9"]


@pytest.mark.parametrize("source", NO_PATHS)
def test_a_source_that_is_no_path(client: Client, source: str) -> None:
    reply = refused(client, {"Stream-Forked-From": source})
    assert reply.status == 400


def test_another_content_type(client: Client) -> None:
    source, _ = text_stream(client)
    assert refused(client, JSON | fork_of(source)).status == 409
    assert client.put(fresh(), TEXT | fork_of(source)).status == 201


@pytest.mark.parametrize(
    "offset", ["", "0", "-2", "latest", "0_0", START + "0", "0000000000000001_0000000000009999"]
)
def test_a_malformed_or_unknown_offset(client: Client, offset: str) -> None:
    source, _ = text_stream(client)
    assert refused(client, fork_of(source, offset)).status == 400


def test_an_offset_inside_an_append(client: Client) -> None:
    source, offsets = text_stream(client)
    inside = offsets[2][:-1] + str(int(offsets[2][-1]) - 1)
    path = fork(client, source, inside, 2)
    assert client.get(path).body == b"onetw"


def test_one_past_the_tail_of_the_source(client: Client) -> None:
    source, offsets = text_stream(client)
    past = f"{offsets[-1][:-16]}{int(offsets[-1][-16:]) + 1:016}"
    assert refused(client, fork_of(source, past)).status == 400


def test_reads_near_the_seam_are_rounded_down(client: Client) -> None:
    """A fork that parts inside an append has a boundary there that its source does not have."""
    source, offsets = text_stream(client)
    path = fork(client, source, offsets[1], 2)
    seam = client.head(path).next_offset
    run, position = seam[:-16], int(seam[-16:])
    beyond = f"{run}{position + 1:016}"
    assert client.get(path, f"offset={beyond}").body == b"", "one past the tail of an empty fork"
    client.post(path, b"mine", TEXT)
    assert client.get(path, f"offset={run}{position - 1:016}").body == b"twmine"
    assert client.get(path, f"offset={seam}").body == b"mine"
    assert error_code(client.get(path, f"offset={beyond}")) == "unknown_offset"
    own = client.head(path).next_offset[:-16]
    assert client.get(path, f"offset={own}{position + 1:016}").body == b"mine"


@pytest.mark.parametrize("count", ["", "-1", "+1", "1.0", "1e0", "one", " ", "4", "9" * 30])
def test_a_malformed_sub_offset(client: Client, count: str) -> None:
    source, offsets = text_stream(client)
    assert refused(client, fork_of(source, offsets[1], count)).status == 400


def test_a_sub_offset_that_has_nothing_to_count(client: Client) -> None:
    source, offsets = text_stream(client)
    assert refused(client, fork_of(source, None, 1)).status == 400
    assert refused(client, fork_of(source, offsets[-1], 1)).status == 400


def test_fork_positions_without_a_source(client: Client) -> None:
    assert refused(client, {"Stream-Fork-Offset": "-1"}).status == 400
    assert refused(client, {"Stream-Fork-Sub-Offset": "0"}).status == 400


def test_a_refused_fork_holds_nothing(client: Client) -> None:
    source, offsets = text_stream(client)
    assert refused(client, JSON | fork_of(source)).status == 409
    assert refused(client, fork_of(source, offsets[1], 99)).status == 400
    assert client.delete(source).status == 204
    assert client.get(source).status == 404


# ── Sources that are deleted ─────────────────────────────────────────────────────────────────


def statuses(client: Client, path: str) -> list[int]:
    """What each method answers."""
    return [
        client.get(path).status,
        client.head(path).status,
        client.post(path, b"x", TEXT).status,
        client.delete(path).status,
        client.put(path, TEXT).status,
    ]


def test_a_source_with_forks_is_gone_but_held(client: Client) -> None:
    source, _ = text_stream(client)
    one, two = fork(client, source), fork(client, source)
    assert client.delete(source).status == 204
    assert statuses(client, source) == [410, 410, 410, 410, 409]
    assert refused(client, fork_of(source)).status == 409
    assert client.get(one).body == client.get(two).body == b"onetwothree"
    client.delete(one)
    assert client.get(source).status == 410
    client.delete(two)
    assert client.get(source).status == 404
    assert client.put(source, TEXT).status == 201


def test_a_chain_is_collected_from_its_end(client: Client) -> None:
    chain = [client.create(TEXT, b"0")]
    for _ in range(4):
        chain.append(fork(client, chain[-1]))
    for path in chain[:-1]:
        assert client.delete(path).status == 204
        assert client.get(path).status == 410
    assert client.get(chain[-1]).body == b"0"
    assert client.delete(chain[-1]).status == 204
    assert [client.get(path).status for path in chain] == [404] * 5


def test_a_chain_is_collected_up_to_what_is_alive(client: Client) -> None:
    root = client.create(TEXT, b"0")
    middle = fork(client, root)
    leaf = fork(client, middle)
    client.delete(middle)
    client.delete(leaf)
    assert client.get(middle).status == 404
    assert client.get(root).body == b"0"
    client.delete(root)
    assert client.get(root).status == 404


def test_a_deleted_source_is_not_listed(client: Client) -> None:
    source, _ = text_stream(client)
    path = fork(client, source)
    client.delete(source)
    names = {s["name"] for s in client.json(f"/v1/streams?prefix={source}")["streams"]}
    assert source not in names
    assert client.json(f"/v1/stream/{path}/_details")["forked_from"] == source


def test_details_of_a_deleted_source(client: Client) -> None:
    source, _ = text_stream(client)
    fork(client, source)
    client.delete(source)
    assert client.send("GET", f"/v1/stream/{source}/_details").status == 410
