"""…/_snapshots: the state at an offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.store.sqlite.engine import SqliteEngine
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
URL = "/v1/stream/orders"


@pytest.fixture(params=["memory", "sqlite"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    where = ["--memory"] if request.param == "memory" else ["--data", str(tmp_path / "data")]
    with ServerProcess(*where) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def offsets(http: httpx.Client, appends: int) -> list[str]:
    """The offsets of a new stream with `count` appends."""
    found = [http.put(URL, headers=JSON).headers["stream-next-offset"]]
    for number in range(appends):
        answer = http.post(URL, json=[number, number])
        found.append(answer.headers["stream-next-offset"])
    return found


def put(http: httpx.Client, offset: str, body: bytes = b"{}") -> int:
    return http.put(f"{URL}/_snapshots/{offset}", content=body, headers=JSON).status_code


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def listed(http: httpx.Client) -> list[str]:
    return [one["offset"] for one in http.get(f"{URL}/_snapshots").json()["snapshots"]]


def test_begin_with_the_latest_and_read_on(http: httpx.Client) -> None:
    first, second, _ = offsets(http, 2)
    assert code(http.get(f"{URL}/_snapshots/latest")) == (404, "snapshot_not_found")
    assert put(http, first, b'{"n":0}') == 201
    assert put(http, second, b'{"n":1}') == 201
    latest = http.get(f"{URL}/_snapshots/latest")
    assert latest.content == b'{"n":1}'
    assert latest.headers["content-type"] == "application/json"
    assert latest.headers["stream-next-offset"] == second
    assert http.get(URL, params={"offset": second}).json() == [1, 1]
    assert http.get(f"{URL}/_snapshots/{first}").content == b'{"n":0}'
    assert listed(http) == [second, first]


def test_the_newest_three_are_kept(http: httpx.Client) -> None:
    places = offsets(http, 4)
    for offset in places[1:]:
        assert put(http, offset) == 201
    assert listed(http) == places[:1:-1]
    refused = http.put(f"{URL}/_snapshots/{places[0]}", content=b"{}", headers=JSON)
    assert code(refused) == (409, "snapshot_outdated")
    assert put(http, places[2], b"[]") == 200
    assert http.get(f"{URL}/_snapshots/{places[2]}").content == b"[]"
    assert http.delete(f"{URL}/_snapshots/{places[4]}").status_code == 204
    assert listed(http) == [places[3], places[2]]
    assert code(http.delete(f"{URL}/_snapshots/{places[4]}")) == (404, "snapshot_not_found")


def test_snapshots_that_make_no_sense(http: httpx.Client) -> None:
    _, second, tail = offsets(http, 2)
    inside = f"{second[:17]}{int(second[17:]) + 1:016d}"
    beyond = f"{tail[:17]}{int(tail[17:]) + 1:016d}"
    for offset, expected in [
        (inside, "unknown_offset"),
        (beyond, "unknown_offset"),
        ("latest", "invalid_offset"),
        ("now", "invalid_offset"),
        ("x", "invalid_offset"),
    ]:
        answer = http.put(f"{URL}/_snapshots/{offset}", content=b"{}", headers=JSON)
        assert code(answer) == (400, expected)
    there = f"{URL}/_snapshots/{tail}"
    assert code(http.put(there, headers=JSON)) == (400, "empty_body")
    assert code(http.put(there, content=b"x")) == (400, "missing_content_type")
    assert http.post(there, content=b"x", headers=JSON).status_code == 405
    nowhere = "/v1/stream/nothing/_snapshots"
    assert code(http.get(nowhere)) == (404, "stream_not_found")
    assert code(http.get(f"{nowhere}/latest")) == (404, "stream_not_found")
    answer = http.put(f"{nowhere}/{tail}", content=b"{}", headers=JSON)
    assert code(answer) == (404, "stream_not_found")
    assert code(http.put(f"{URL}/_snapshots", headers=JSON)) == (400, "invalid_path")


def test_a_stream_created_anew_has_none(http: httpx.Client) -> None:
    _, tail = offsets(http, 1)
    put(http, tail)
    http.delete(URL)
    offsets(http, 1)
    assert listed(http) == []
    assert code(http.get(f"{URL}/_snapshots/{tail}")) == (400, "unknown_offset")


def test_an_acknowledged_snapshot_survives_a_crash(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        with httpx.Client(base_url=server.url) as http:
            _, tail = offsets(http, 1)
            assert put(http, tail, b'"kept"') == 201
        server.kill()
        server.start()
        with httpx.Client(base_url=server.url) as http:
            assert http.get(f"{URL}/_snapshots/latest").content == b'"kept"'


def test_damage_is_noticed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess("--data", str(data)) as server, httpx.Client(base_url=server.url) as http:
        _, tail = offsets(http, 1)
        put(http, tail, b'"good"')
    engine = SqliteEngine(data)
    try:
        with engine._transaction() as write:
            write.execute("UPDATE snapshots SET body = ?", (b'"bad"',))
        assert any("snapshot at" in str(found) for found in engine.verify())
    finally:
        engine.close()
    with ServerProcess("--data", str(data)) as server, httpx.Client(base_url=server.url) as http:
        assert code(http.get(f"{URL}/_snapshots/latest")) == (500, "data_corrupt")
