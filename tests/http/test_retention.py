"""Retention over HTTP."""

from __future__ import annotations

import pytest

from tests.http.client import TEXT, Client, error_code, eventually, fresh


def test_offsets_that_are_not_kept_are_gone(client: Client) -> None:
    path = fresh()
    assert client.put(path, TEXT | {"Stream-Retention-Bytes": "25"}).status == 201
    offsets = [client.post(path, b"%d" % n * 10, TEXT).next_offset for n in range(6)]
    # It may be trimmed while it is written, and once more after that.
    eventually(lambda: client.head(path).headers.get("Stream-Earliest-Offset") == offsets[3])
    reply = client.get(path, f"offset={offsets[0]}")
    assert (reply.status, error_code(reply)) == (410, "offset_expired")
    assert reply.headers["Stream-Earliest-Offset"] == offsets[3]
    kept = client.get(path, f"offset={offsets[3]}")
    assert (kept.status, kept.body) == (200, b"4" * 10 + b"5" * 10)
    from_start = client.get(path)
    assert from_start.body == kept.body, "-1 is the beginning of what there is"
    assert from_start.headers["Stream-Earliest-Offset"] == offsets[3]
    assert "Stream-Earliest-Offset" not in client.get(path, f"offset={offsets[4]}").headers
    assert client.get(path, f"offset={offsets[0]}&live=sse").status == 410
    assert client.get(path, f"offset={offsets[0]}&live=long-poll").status == 410
    head = client.head(path).headers
    assert head["Stream-Retention-Bytes"] == "25"
    assert head["Stream-Earliest-Offset"] == offsets[3]
    assert "Stream-Retention-Seconds" not in head
    details = client.json(f"/v1/stream/{path}/_details")
    assert (details["retention_s"], details["retention_bytes"]) == (None, 25)
    assert details["earliest"] == offsets[3]


def test_a_stream_without_retention_says_nothing_of_it(client: Client) -> None:
    path = client.create(TEXT, b"x")
    names = [name for name, _ in client.head(path).headers.fields]
    assert not [name for name in names if "Retention" in name or "Earliest" in name]


def test_it_is_a_part_of_the_configuration(client: Client) -> None:
    path = fresh()
    settings = TEXT | {"Stream-Retention-Seconds": "60"}
    assert client.put(path, settings).status == 201
    assert client.put(path, settings).status == 200
    assert client.put(path, TEXT).status == 409
    assert client.put(path, TEXT | {"Stream-Retention-Seconds": "61"}).status == 409
    newer = {"Stream-Config-Version": "4", "Stream-Retention-Bytes": "10"}
    assert client.put(path, TEXT | newer).status == 200
    head = client.head(path).headers
    assert head["Stream-Retention-Bytes"] == "10"
    assert "Stream-Retention-Seconds" not in head


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1.5", "9" * 40])
@pytest.mark.parametrize("header", ["Stream-Retention-Seconds", "Stream-Retention-Bytes"])
def test_nonsense_is_refused(client: Client, header: str, value: str) -> None:
    assert client.put(fresh(), TEXT | {header: value}).status == 400
