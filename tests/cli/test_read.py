"""read and tail: what is written to stdout, from where, and how much of it."""

from __future__ import annotations

import base64
import time

import pytest

from headwater.cli.output import on_one_line
from headwater.client import Headwater
from tests.cli.conftest import Run
from tests.cli.plain_server import plain_server


@pytest.fixture
def orders(client: Headwater, json_stream: str) -> str:
    """Ten messages in three appends."""
    stream = client.stream(json_stream)
    for group in ([1, 2, 3], [4, 5, 6, 7], [8, 9, 10]):
        stream.append_all(group)
    return json_stream


@pytest.fixture
def lines(client: Headwater, text_stream: str) -> str:
    """Ten lines in appends that do not end where lines end."""
    stream = client.stream(text_stream)
    for piece in ("1\n2\n3", "\n", "4\n5\n6\n7\n", "8\n9\n1", "0\n"):
        stream.append(piece)
    return text_stream


TEN = [str(number) for number in range(1, 11)]


def test_json_is_one_message_a_line_with_its_bytes_as_sent(run: Run, json_stream: str) -> None:
    sent = ['{"b": 1.0, "a": 100000000000000000000000, "b": "\\u00e9é"}', "[1, 2]", "null", '"x"']
    run("append", json_stream, stdin="\n".join(sent))
    assert run("read", json_stream).lines == sent


def test_a_stream_whose_beginning_was_dropped_is_read_from_what_is_kept(
    run: Run, client: Headwater, path: str
) -> None:
    run("create", path, "--keep-bytes", "20")
    for number in range(10):
        run("append", path, str(10_000 + number))
    stream = client.stream(path)
    deadline = time.monotonic() + 60
    while True:
        earliest, ran = stream.head().earliest_offset, run("read", path)
        # More of it may be dropped at any moment.
        if earliest is not None and stream.head().earliest_offset == earliest:
            break
        assert time.monotonic() < deadline
    assert ran.lines[-1] == "10009"
    assert 0 < len(ran.lines) < 10
    assert f"begins at {earliest}" in ran.err
    assert run("read", path, "--from", "-1").err == ""


def test_json_laid_out_over_lines_is_still_one_line(run: Run, json_stream: str) -> None:
    run("append", json_stream, "--raw", stdin='{\n  "a": 1.0,\r\n  "b": "\\n"\n}')
    assert run("read", json_stream).lines == ['{"a":1.0,"b":"\\n"}']
    assert run("read", json_stream, "--json").record["value"] == {"a": 1.0, "b": "\n"}
    assert on_one_line(b'{"a": 1}') == b'{"a": 1}'


def test_other_streams_are_written_as_the_bytes_that_they_are(
    run: Run, client: Headwater, bytes_stream: str
) -> None:
    data = bytes(range(256)) * 3
    client.stream(bytes_stream).append(data)
    client.stream(bytes_stream).append(b"\x00end")
    # The runner decodes what was written, so ask for it in base64.
    records = run("read", bytes_stream, "--json").records
    assert b"".join(base64.b64decode(record["data"]) for record in records) == data + b"\x00end"


@pytest.mark.parametrize(
    "where, first",
    [
        ("start", 0),
        ("-3", 7),
        ("-4", 6),
        ("-10", 0),
        ("-99", 0),
        ("-1", 9),
        ("now", 10),
        ("-0", 10),
        ("@1h", 0),
        ("@2000-01-01T00:00:00Z", 0),
        ("@2999-01-01T00:00:00Z", 10),
    ],
)
@pytest.mark.parametrize("kind", ["orders", "lines"])
def test_from(run: Run, request: pytest.FixtureRequest, kind: str, where: str, first: int) -> None:
    stream: str = request.getfixturevalue(kind)
    assert run("read", stream, "--from", where).lines == TEN[first:]


@pytest.mark.parametrize("where", ["-4", "-99", "now"])
@pytest.mark.parametrize("kind", ["orders", "lines"])
def test_from_on_a_server_that_knows_no_positions(
    run: Run, base_url: str, request: pytest.FixtureRequest, kind: str, where: str
) -> None:
    stream: str = request.getfixturevalue(kind)
    with plain_server(base_url) as url:
        there = run("read", stream, "--from", where, STREAM_URL=url).lines
        assert there == run("read", stream, "--from", where).lines
        error = run("read", stream, "--from", "@1h", STREAM_URL=url, code=1).err
        assert "cannot find a moment" in error


def test_a_moment_between_two_appends(run: Run, json_stream: str) -> None:
    run("append", json_stream, "1")
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    run("append", json_stream, "2")
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(between_ms / 1000))
    moment += f".{between_ms % 1000:03}Z"
    assert run("read", json_stream, "--from", f"@{moment}").lines == ["2"]


@pytest.mark.parametrize("where, expected", [("-3", "890"), ("-1", "0"), ("-99", "1234567890")])
def test_the_last_bytes(
    run: Run, client: Headwater, base_url: str, bytes_stream: str, where: str, expected: str
) -> None:
    for piece in ("1", "234", "5", "67890"):
        client.stream(bytes_stream).append(piece)
    assert run("read", bytes_stream, "--from", where).out == expected
    with plain_server(base_url) as url:
        assert run("read", bytes_stream, "--from", where, STREAM_URL=url).out == expected


@pytest.mark.parametrize("count", [1, 3, 5, 10, 11])
@pytest.mark.parametrize("kind", ["orders", "lines"])
def test_count_stops_there(run: Run, request: pytest.FixtureRequest, kind: str, count: int) -> None:
    stream: str = request.getfixturevalue(kind)
    assert run("read", stream, "-n", str(count)).lines == TEN[:count]
    assert len(run("read", stream, "-n", str(count), "--json").records) == min(count, 10)


def test_count_of_bytes(run: Run, client: Headwater, bytes_stream: str) -> None:
    client.stream(bytes_stream).append("12345")
    client.stream(bytes_stream).append("67890")
    assert run("read", bytes_stream, "-n", "7").out == "1234567"
    assert run("read", bytes_stream, "-n", "3", "--from", "-5").out == "678"


def test_count_ends_a_read_that_would_follow(run: Run, orders: str) -> None:
    assert run("read", orders, "-n", "4", "--follow").lines == TEN[:4]


def test_following_ends_with_the_stream(run: Run, orders: str) -> None:
    run("close", orders)
    assert run("read", orders, "--follow").lines == TEN
    assert run("tail", orders, "-n", "2").lines == TEN[-2:]


@pytest.mark.parametrize("kind", ["orders", "lines"])
def test_every_record_says_how_to_go_on(
    run: Run, request: pytest.FixtureRequest, kind: str
) -> None:
    stream: str = request.getfixturevalue(kind)
    records = run("read", stream, "--json").records
    name = "value" if kind == "orders" else "text"
    assert [str(record[name]) for record in records] == TEN
    for number, record in enumerate(records, 1):
        assert set(record) == {name, "next"}
        assert run("read", stream, "--from", record["next"]).lines == TEN[number:]


def test_records_of_lines_without_an_end_and_without_utf8(
    run: Run, client: Headwater, text_stream: str
) -> None:
    client.stream(text_stream).append(b"a\r\n\xff\n\nlast")
    first, second, third, fourth = run("read", text_stream, "--json").records
    assert first["text"] == "a"
    assert base64.b64decode(second["data"]) == b"\xff\n"
    assert third["text"] == ""
    assert fourth["text"] == "last"
    assert run("read", text_stream, "--from", fourth["next"]).out == ""


def test_tail_begins_with_the_last_ten(run: Run, client: Headwater, json_stream: str) -> None:
    client.stream(json_stream).append_all(range(25))
    assert run("tail", json_stream, "--no-follow").lines == [str(n) for n in range(15, 25)]
    assert run("tail", json_stream, "--no-follow", "-n", "3").lines == ["22", "23", "24"]
    assert run("tail", json_stream, "--no-follow", "-n", "0").lines == []
    assert len(run("tail", json_stream, "--no-follow", "--from", "start").lines) == 25
    assert "use one of" in run("tail", json_stream, "-n", "1", "--from", "start", code=2).err


def test_tail_of_bytes_begins_with_what_is_new(run: Run, bytes_stream: str) -> None:
    run("append", bytes_stream, "0123456789abcdef")
    assert run("tail", bytes_stream, "--no-follow").out == ""
    assert run("tail", bytes_stream, "--no-follow", "-n", "3").out == "def"


def test_an_empty_stream(run: Run, json_stream: str) -> None:
    assert run("read", json_stream).out == ""
    assert run("read", json_stream, "--from", "-5").out == ""
    assert run("read", json_stream, "--from", "@1h", "--json").out == ""


def test_what_is_not_there(run: Run, path: str) -> None:
    for command in ("read", "tail", "info"):
        assert f"no stream '{path}'" in run(command, path, code=3).err


def test_an_offset_that_the_server_does_not_know(run: Run, orders: str) -> None:
    assert "offset" in run("read", orders, "--from", "begin", code=1).err
    assert "not a position" in run("read", orders, "--from", "0_0/x", code=2).err


def test_a_stream_of_many_chunks(run: Run, client: Headwater, text_stream: str) -> None:
    line = "x" * 999 + "\n"
    client.stream(text_stream).append_all([line] * 3_000)
    ran = run("read", text_stream)
    assert len(ran.out) == 3_000_000
    assert len(run("read", text_stream, "--json").lines) == 3_000
    assert len(run("read", text_stream, "--from", "-2500").lines) == 2_500


# ── Details ──────────────────────────────────────────────────────────────────────────────────


def test_details_are_the_id_the_time_and_the_producer(
    run: Run, client: Headwater, json_stream: str
) -> None:
    stream = client.stream(json_stream)
    stream.append_all([1, 2])
    stream.append({"n": 3}, id="order-3")
    with stream.producer("till", epoch=7) as producer:
        producer.append(4)
    records = run("read", json_stream, "--details").records
    assert [record["value"] for record in records] == [1, 2, {"n": 3}, 4]
    assert [record["index"] for record in records] == [0, 1, 0, 0]
    assert [record["id"] for record in records] == [None, None, "order-3", None]
    who = [
        (record["producer_id"], record["producer_epoch"], record["producer_seq"])
        for record in records
    ]
    assert who == [(None, None, None)] * 3 + [("till", 7, 0)]
    assert all(record["time"].endswith("Z") for record in records)
    for number, record in enumerate(records, 1):
        rest = run("read", json_stream, "--details", "--from", record["next"]).records
        assert rest == records[number:]


def test_details_of_bytes_come_append_by_append(run: Run, lines: str) -> None:
    records = run("read", lines, "--details").records
    data = [base64.b64decode(record["data"]) for record in records]
    assert data == [b"1\n2\n3", b"\n", b"4\n5\n6\n7\n", b"8\n9\n1", b"0\n"]
    run("read", lines, "--details", "-n", "1", code=2)


def test_details_count_and_follow_to_the_end(run: Run, client: Headwater, orders: str) -> None:
    records = run("read", orders, "--details", "-n", "5").records
    assert [record["value"] for record in records] == [1, 2, 3, 4, 5]
    client.stream(orders).close()
    rest = run("read", orders, "--details", "--follow", "--from", records[-1]["next"]).records
    assert [record["value"] for record in rest] == [6, 7, 8, 9, 10]
