"""Reads that end where they are told to, and reading in bulk, from rows and from history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import pyarrow as pa
import pytest

from headwater.http.messages import Peer, Request
from headwater.http.resources.bulk import ARROW_TYPE
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=["memory", "sqlite", "sealed"])
def http(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    data = ["--data", str(tmp_path_factory.mktemp("bulk") / "data")]
    options = {"memory": ["--memory"], "sqlite": data, "sealed": [*data, *SEALING_AT_ONCE]}
    with (
        ServerProcess(*options[request.param]) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        client.headers["x-engine"] = request.param
        yield client


class Stream:
    """A stream of a few appends, and the offsets between them."""

    def __init__(self, http: httpx.Client, path: str, *appends: list[Any]) -> None:
        self.http = http
        self.url = f"/v1/stream/{path}"
        self.offsets = [http.put(self.url, headers=JSON).headers["stream-next-offset"]]
        for messages in appends:
            self.append(messages)

    def append(self, messages: list[Any], **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.http.post(self.url, json=messages, headers=named)
        assert answer.status_code < 300, answer.text
        self.offsets.append(answer.headers["stream-next-offset"])

    def get(self, name: str = "", **query: object) -> httpx.Response:
        return self.http.get(f"{self.url}{name}", params={k: str(v) for k, v in query.items()})

    def rows(self, **query: object) -> list[dict[str, Any]]:
        answer = self.get("/_bulk", **query)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def arrow(self, **query: object) -> pa.Table:
        params = {name: str(value) for name, value in query.items()}
        answer = self.http.get(f"{self.url}/_bulk", params=params, headers={"Accept": ARROW_TYPE})
        assert answer.headers["content-type"] == ARROW_TYPE
        return pa.ipc.open_stream(answer.content).read_all()


@pytest.fixture
def stream(http: httpx.Client, request: pytest.FixtureRequest) -> Stream:
    path = "".join(c if c.isalnum() else "-" for c in request.node.name)[:90]
    return Stream(http, path, [1, 2], [{"n": 3}], ["four", [5]])


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


# ── until ────────────────────────────────────────────────────────────────────────────────────


def test_a_read_ends_where_it_is_told_to(stream: Stream) -> None:
    first, second, third, tail = stream.offsets
    cases = [("-1", second, [1, 2]), (second, third, [{"n": 3}]), ("-1", third, [1, 2, {"n": 3}])]
    for offset, until, expected in cases:
        answer = stream.get(offset=offset, until=until)
        assert answer.json() == expected
        assert answer.headers["stream-next-offset"] == until
        assert "stream-up-to-date" not in answer.headers
    whole = stream.get(offset=first, until=tail)
    assert whole.json() == [1, 2, {"n": 3}, "four", [5]]
    assert whole.headers["stream-up-to-date"] == "true"


def test_what_comes_later_does_not_change_it(stream: Stream) -> None:
    tail = stream.offsets[-1]
    before = stream.get(offset=-1, until=tail)
    stream.append(["later"])
    after = stream.get(offset=-1, until=tail)
    assert after.content == before.content
    assert after.headers["stream-next-offset"] == tail


def test_an_empty_stretch(stream: Stream) -> None:
    middle = stream.offsets[1]
    answer = stream.get(offset=middle, until=middle)
    assert (answer.status_code, answer.json()) == (200, [])
    assert answer.headers["stream-next-offset"] == middle


def test_ends_between_boundaries_are_rounded_down(stream: Stream) -> None:
    _, _, third, tail = stream.offsets
    run, position = tail.split("_")
    past, inside = f"{run}_{int(position) + 1:016}", f"{run}_{int(position) - 1:016}"
    for resource in ("", "/_bulk"):
        whole = stream.get(resource, offset=-1, until=tail)
        assert stream.get(resource, offset=-1, until=past).content == whole.content
        cut = stream.get(resource, offset=-1, until=inside)
        assert cut.content == stream.get(resource, offset=-1, until=third).content
        assert cut.headers["stream-next-offset"] == third
        rest = stream.get(resource, offset=inside)
        assert rest.content == stream.get(resource, offset=third).content
        nothing = stream.get(resource, offset=inside, until=inside)
        assert nothing.headers["stream-next-offset"] == third
    ranges = stream.get("/_segments", offset=inside, until=past).json()["ranges"]
    assert (ranges[0]["offset"], ranges[-1]["until"]) == (third, tail)


def test_ends_that_make_no_sense(stream: Stream) -> None:
    _, second, third, tail = stream.offsets
    run, position = tail.split("_")
    beyond = f"{run}_{int(position) + 2:016}"
    assert code(stream.get(offset=third, until=second)) == (400, "invalid_query")
    assert code(stream.get(offset=-1, until=beyond)) == (400, "unknown_offset")
    for until in ("", "now", "-1", "x"):
        assert code(stream.get(offset=-1, until=until)) == (400, "invalid_offset")
    for live in ("sse", "long-poll"):
        answer = stream.get(offset=-1, until=tail, live=live)
        assert code(answer) == (400, "invalid_query")


# ── Ranges ───────────────────────────────────────────────────────────────────────────────────


def test_ranges_cover_everything_once(http: httpx.Client) -> None:
    stream = Stream(http, "ranges", *[[f"{n:05}" * 4_000] * 2 for n in range(20)])
    for bounds in [(stream.offsets[0], stream.offsets[-1]), (stream.offsets[3], stream.offsets[9])]:
        plan = stream.get("/_segments", offset=bounds[0], until=bounds[1], max_bytes=65_536).json()
        assert "ranges" in plan, plan
        ranges = plan["ranges"]
        assert [one["offset"] for one in ranges] == [
            bounds[0],
            *[one["until"] for one in ranges[:-1]],
        ]
        assert ranges[-1]["until"] == bounds[1]
        assert len(ranges) > 2
        for one in ranges:
            rows = stream.rows(offset=one["offset"], until=one["until"])
            assert len(rows) == one["messages"]
            times = [row["timestamp"] for row in rows]
            assert [min(times), max(times)] == [one["first_timestamp"], one["last_timestamp"]]
        numbers = [one["first_message"] for one in ranges]
        assert numbers[0] == 2 * stream.offsets.index(bounds[0])
        assert sum(one["messages"] for one in ranges) == 2 * (
            stream.offsets.index(bounds[1]) - stream.offsets.index(bounds[0])
        )


def test_ranges_of_history_name_their_file(http: httpx.Client) -> None:
    stream = Stream(http, "files", [1], [2], [3])
    sealed = http.headers["x-engine"] == "sealed"
    while True:
        files = [one["file"] for one in stream.get("/_segments").json()["ranges"]]
        if not sealed or any(files):
            break
    assert any(files) == sealed
    if sealed:
        assert set(files[0]) == {"name", "size_bytes", "checksum", "index_offset", "location"}


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_paths_of_this_machine_are_not_told_elsewhere(http: httpx.Client, header: str) -> None:
    if http.headers["x-engine"] != "sealed":
        return
    stream = Stream(http, f"told-{header.lower()}", [1])
    while (file := stream.get("/_segments").json()["ranges"][0]["file"]) is None:
        pass
    path = Path(url2pathname(urlsplit(file["location"]).path))
    assert (path.name, path.stat().st_size) == (file["name"], file["size_bytes"])
    answer = http.get(f"{stream.url}/_segments", headers={header: "192.0.2.7"})
    assert answer.json()["ranges"][0]["file"] == {**file, "location": None}
    assert str(path.parent) not in answer.text


@pytest.mark.parametrize(
    "address, local",
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("2001:db8::1", False),
        ("", False),
    ],
)
def test_who_is_on_this_machine(address: str, local: bool) -> None:
    request = Request("GET", b"/", b"", {})
    request.peer = Peer(address)
    assert request.is_local is local


def test_an_empty_stream_has_no_ranges(http: httpx.Client) -> None:
    stream = Stream(http, "empty")
    plan = stream.get("/_segments").json()
    assert (plan["ranges"], plan["messages"], plan["tail"]) == ([], 0, stream.offsets[0])
    assert stream.rows() == []
    assert stream.arrow().num_rows == 0


def test_a_fork_is_planned_across_what_it_inherits(http: httpx.Client) -> None:
    source = Stream(http, "source", [1, 2, 3], [4])
    fork = "/v1/stream/a-fork"
    headers = {
        "Stream-Forked-From": "source",
        "Stream-Fork-Offset": source.offsets[0],
        "Stream-Fork-Sub-Offset": "2",
    }
    assert http.put(fork, headers=headers).status_code == 201
    http.post(fork, json=["own"])
    ranges = http.get(f"{fork}/_segments").json()["ranges"]
    assert [one["messages"] for one in ranges] == [2, 1]
    rows = [json.loads(line) for line in http.get(f"{fork}/_bulk").text.splitlines()]
    assert [row["value"] for row in rows] == [1, 2, "own"]
    assert [row["index"] for row in rows] == [0, 1, 0]


def test_a_cut_that_does_not_go_by_file_stays_the_same(http: httpx.Client) -> None:
    stream = Stream(http, "same-cut", *[["x" * 40_000] for _ in range(6)])
    bounds = {"offset": stream.offsets[0], "until": stream.offsets[-1], "max_bytes": 100_000}
    ranges = stream.get("/_segments", **bounds, files="false").json()["ranges"]
    assert [one["messages"] for one in ranges] == [2, 2, 2]
    assert [one["file"] for one in ranges] == [None] * 3


def test_a_message_with_line_ends_is_one_line(http: httpx.Client) -> None:
    stream = Stream(http, "pretty-printed")
    body = b'[{"a":\n 1,\r\n "b": "x\\ny"},\r 2]'
    http.post(stream.url, content=body, headers=JSON)
    answer = stream.get("/_bulk")
    assert answer.text.count("\n") == 2
    assert "\r" not in answer.text
    values = [json.loads(line)["value"] for line in answer.text.splitlines()]
    assert values == [{"a": 1, "b": "x\ny"}, 2]


# ── How far a read gets ──────────────────────────────────────────────────────────────────────


def reach(stream: Stream, **query: object) -> tuple[str, int, int]:
    answer = stream.get("/_position", **query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["tail"] == stream.offsets[-1]
    return found["offset"], found["messages"], found["messages_behind"]


def test_a_read_takes_in_whole_appends_and_at_least_one(stream: Stream) -> None:
    first, second, third, tail = stream.offsets
    assert reach(stream, offset=-1) == (tail, 5, 0)
    assert reach(stream, offset=first, messages=1) == (second, 2, 3)
    assert reach(stream, offset=first, messages=3) == (third, 3, 2)
    assert reach(stream, offset=first, messages=4) == (third, 3, 2)
    assert reach(stream, offset=second, messages=3) == (tail, 3, 0)
    assert reach(stream, offset=second, messages=99) == (tail, 3, 0)
    assert reach(stream, offset=tail, messages=0) == (tail, 0, 0)
    assert reach(stream, offset=-1, bytes=1) == (second, 2, 3)
    sizes = stream.get("/_position", offset=first, messages=3).json()["bytes"]
    assert reach(stream, offset=first, bytes=sizes) == (third, 3, 2)
    assert reach(stream, offset=first, bytes=sizes - 1) == (second, 2, 3)
    assert reach(stream, offset=first, bytes=sizes, messages=2) == (second, 2, 3)
    assert reach(stream, offset=first, bytes=10**9) == (tail, 5, 0)


def place(stream: Stream, **query: object) -> tuple[str, int]:
    answer = stream.get("/_position", **query)
    assert answer.status_code == 200, answer.text
    return answer.json()["offset"], answer.json()["skip"]


def test_messages_are_found_by_their_number(stream: Stream) -> None:
    first, second, third, tail = stream.offsets
    found = [place(stream, number=number) for number in range(6)]
    assert found == [(first, 0), (first, 1), (second, 0), (third, 0), (third, 1), (tail, 0)]
    assert place(stream, number=10**15 - 1) == (tail, 0)


def test_the_last_messages_before_an_offset_are_found(stream: Stream) -> None:
    first, second, third, tail = stream.offsets
    assert place(stream, last=1, until=tail) == place(stream, last=1) == (third, 1)
    assert place(stream, last=1, until=third) == (second, 0)
    assert place(stream, last=2, until=third) == (first, 1)
    assert place(stream, last=99, until=third) == (first, 0)
    assert place(stream, last=1, until=first) == (first, 0)
    assert place(stream, last=1, until="now") == (third, 1)
    assert place(stream, last=1, until=-1) == (first, 0)
    assert code(stream.get("/_position", last=1, until="x")) == (400, "invalid_offset")


def test_limits_that_make_no_sense(stream: Stream) -> None:
    assert code(stream.get("/_position")) == (400, "invalid_query")
    assert code(stream.get("/_position", offset=-1, last=1)) == (400, "invalid_query")
    assert code(stream.get("/_position", number=1, last=1)) == (400, "invalid_query")
    assert code(stream.get("/_position", number=-1)) == (400, "invalid_query")
    assert code(stream.get("/_position", offset=-1, messages="x")) == (400, "invalid_query")
    assert code(stream.get("/_position", offset="x")) == (400, "invalid_offset")


def test_a_read_gets_across_what_a_fork_inherits(http: httpx.Client) -> None:
    source = Stream(http, "reach-source", [1, 2, 3], [4])
    headers = {
        "Stream-Forked-From": "reach-source",
        "Stream-Fork-Offset": source.offsets[0],
        "Stream-Fork-Sub-Offset": "2",
    }
    url = "/v1/stream/reach-fork"
    assert http.put(url, headers=headers).status_code == 201
    http.post(url, json=["own"])

    def found(**query: object) -> tuple[int, int]:
        answer = http.get(f"{url}/_position", params={k: str(v) for k, v in query.items()}).json()
        return answer["messages"], answer["messages_behind"]

    assert found(offset=-1) == (3, 0)
    assert found(offset=-1, messages=1) == (2, 1)
    assert found(offset=-1, messages=2) == (2, 1)


# ── Bulk ─────────────────────────────────────────────────────────────────────────────────────


def test_every_message_with_its_place(stream: Stream) -> None:
    rows = stream.rows()
    assert [row["value"] for row in rows] == [1, 2, {"n": 3}, "four", [5]]
    assert [row["index"] for row in rows] == [0, 1, 0, 0, 1]
    starts = stream.offsets
    assert [row["offset"] for row in rows] == [starts[0]] * 2 + [starts[1]] + [starts[2]] * 2
    table = stream.arrow()
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert [json.loads(text) for text in table["value"].to_pylist()] == [r["value"] for r in rows]
    assert table["offset"].to_pylist() == [row["offset"] for row in rows]
    assert table["index"].to_pylist() == [row["index"] for row in rows]


def test_bytes_are_kept_as_sent(http: httpx.Client) -> None:
    stream = Stream(http, "exact")
    http.post(stream.url, content='[1.0, 12345678901234567890, {"b":1,"a":2}]', headers=JSON)
    values = stream.arrow()["value"].to_pylist()
    assert values == ["1.0", "12345678901234567890", '{"b":1,"a":2}']


def test_producers_on_request(stream: Stream) -> None:
    stream.append(["x"], Producer_Id="p", Producer_Epoch="3", Producer_Seq="0")
    *_, plain, stamped = stream.rows(headers="true")
    names = ("producer_id", "producer_epoch", "producer_seq")
    assert [plain[name] for name in names] == [None] * 3
    assert [stamped[name] for name in names] == ["p", 3, 0]
    assert stream.arrow(headers="true").to_pylist()[-1]["producer_id"] == "p"


def test_message_ids_on_request(stream: Stream) -> None:
    stream.append(["x"], Message_Id="order-7")
    stream.append(["y"])
    found = [row["message_id"] for row in stream.rows(headers="true")][-3:]
    assert found == [None, "order-7", None]
    assert stream.arrow(headers="true")["message_id"].to_pylist()[-3:] == found
    assert "message_id" not in stream.rows()[0]


def test_a_message_id_names_one_message(stream: Stream) -> None:
    for messages, message_id in ((["x", "y"], "7"), (["x"], ""), (["x"], "7" * 257)):
        answer = stream.http.post(stream.url, json=messages, headers={"Message-Id": message_id})
        assert code(answer) == (400, "missing_id")


def test_a_bulk_read_goes_on_where_it_stopped(http: httpx.Client) -> None:
    stream = Stream(http, "paged", *[[n, n] for n in range(50)])
    offset, seen = "-1", []
    while True:
        answer = stream.get("/_bulk", offset=offset, max_bytes=20)
        seen += [json.loads(line)["value"] for line in answer.text.splitlines()]
        offset = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            break
    assert seen == [n for n in range(50) for _ in range(2)]
    assert offset == stream.offsets[-1]


def test_other_types_are_one_message_per_append(http: httpx.Client) -> None:
    url = "/v1/stream/binary"
    http.put(url, headers={"Content-Type": "application/octet-stream"})
    for body in (b"\x00\xff", b"text"):
        http.post(url, content=body, headers={"Content-Type": "application/octet-stream"})
    answer = http.get(f"{url}/_bulk", headers={"Accept": ARROW_TYPE})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["value"].to_pylist() == [b"\x00\xff", b"text"]
    lines = [json.loads(line) for line in http.get(f"{url}/_bulk").text.splitlines()]
    assert [line["data"] for line in lines] == ["AP8=", "dGV4dA=="]


def test_bulk_reads_that_make_no_sense(stream: Stream) -> None:
    for name in ("/_bulk", "/_segments"):
        assert code(stream.get(name, max_bytes=0)) == (400, "invalid_query")
        assert code(stream.get(name, max_bytes="x")) == (400, "invalid_query")
        assert code(stream.get(name, offset="x")) == (400, "invalid_offset")
        assert stream.http.post(f"{stream.url}{name}").status_code == 405
        assert code(stream.http.get(f"/v1/stream/nowhere{name}")) == (404, "stream_not_found")


@pytest.mark.parametrize("appends", [[["x"]] * 300, [[1] * 50] * 40, [[1] * 900, [2]]])
def test_tiny_messages_count_for_more_than_their_bytes(
    http: httpx.Client, appends: list[list[Any]], request: pytest.FixtureRequest
) -> None:
    path = "".join(c if c.isalnum() else "-" for c in request.node.name)[:90]
    stream = Stream(http, path, *appends)
    expected = [message for append in appends for message in append]
    largest = max(map(len, appends))
    found: list[Any] = []
    offset = "-1"
    while len(found) < len(expected):
        answer = stream.get("/_bulk", offset=offset, max_bytes=6_400)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert 0 < len(rows) <= max(100, largest)
        assert len(rows) == stream.arrow(offset=offset, max_bytes=6_400).num_rows
        found += [row["value"] for row in rows]
        offset = answer.headers["stream-next-offset"]
    assert found == expected
    assert offset == stream.offsets[-1]
