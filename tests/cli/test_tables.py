"""The tables beside a server: listed and asked over HTTP, in processes that cannot harm it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater.cli.serving.tables import WAITING_MAX, Tables
from headwater.cli.tables import answer_process as answering
from headwater.core.errors import InvalidQuery, TooBusy
from tests.support.server import ServerProcess, free_port

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    orders = {
        "item": ["tea", "cake", None],
        "total": [3, 2**60, 7],
        "price": [1.5, float("nan"), 2.5],
        "at": [MOMENT] * 3,
        "exact": [Decimal("1.25")] * 3,
        "raw": [b"\x00\xff"] * 3,
        "tags": [["a"], [], ["<b>"]],
    }
    write_deltalake(root / "archive/shop.orders", pa.table(orders))
    write_deltalake(root / "archive/shop.orders", pa.table(orders), mode="append")
    return root


async def asked(lake: Path, sql: str | None) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await Tables(lake)(sql))
    return found


async def test_tables_are_described_by_their_log(lake: Path) -> None:
    (table,) = (await asked(lake, None))["tables"]
    assert (table["name"], table["path"]) == ("orders", "archive/shop.orders")
    assert (table["rows"], table["version"]) == (6, 1)
    assert table["size_bytes"] > 0
    assert table["changed"] > 0


async def test_rows_come_with_the_kinds_of_their_columns(lake: Path) -> None:
    found = await asked(lake, "SELECT * FROM orders ORDER BY total LIMIT 1")
    kinds = {one["name"]: one["kind"] for one in found["columns"]}
    assert kinds == {
        "item": "text",
        "total": "number",
        "price": "number",
        "at": "time",
        "exact": "number",
        "raw": "other",
        "tags": "other",
    }
    assert found["rows"] == [["tea", 3, 1.5, "2026-01-02T03:04:05.678000Z", 1.25, "00ff", '["a"]']]
    assert found["more"] is False


async def test_what_a_browser_could_not_hold_is_text(lake: Path) -> None:
    found = await asked(lake, "SELECT total, price FROM orders WHERE item = 'cake' LIMIT 1")
    assert found["rows"] == [[str(2**60), "nan"]]
    long = await asked(lake, "SELECT repeat('x', 5000)")
    assert len(long["rows"][0][0]) == answering.CELL_CHARS_MAX + 1


async def test_only_the_first_rows_are_sent(lake: Path) -> None:
    found = await asked(lake, "SELECT * FROM unnest(range(0, 5000))")
    assert len(found["rows"]) == answering.ROWS_MAX
    assert found["more"] is True


@pytest.mark.parametrize(
    "sql", ["DROP TABLE orders", "SELECT * FROM nothing", "SELEC", "SELECT * FROM '/etc/passwd'"]
)
async def test_what_makes_no_sense_is_refused(lake: Path, sql: str) -> None:
    with pytest.raises(InvalidQuery):
        await Tables(lake)(sql)


async def test_a_question_that_takes_too_long_is_ended(lake: Path) -> None:
    endless = (
        "SELECT count(*) FROM unnest(range(0, 3000000)) a, unnest(range(0, 3000000)) b,"
        " unnest(range(0, 3000000)) c"
    )
    with pytest.raises(InvalidQuery, match="longer than"):
        await Tables(lake, time_s_max=2.0)(endless)


async def test_a_question_that_takes_too_much_memory_is_ended(lake: Path) -> None:
    with pytest.raises(InvalidQuery, match="2 GiB of memory"):
        await Tables(lake, time_s_max=120.0)("SELECT repeat('x', 2000000000)")


async def test_few_may_wait(lake: Path) -> None:
    tables = Tables(lake)
    waiting = [asyncio.ensure_future(tables("SELECT 1")) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(TooBusy):
        await tables("SELECT 1")
    for one in await asyncio.gather(*waiting):
        assert msgspec.json.decode(one)["rows"] == [[1]]


async def test_a_process_that_dies_is_no_answer(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.serving.tables.sys.executable", "/bin/false")
    with pytest.raises(InvalidQuery, match="memory"):
        await Tables(lake)("SELECT 1")


def test_over_http(lake: Path, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "headwater", "up", "--no-pipelines", "--lake", str(lake)]
    arguments = ["--data", str(tmp_path / "data"), "--port", str(port)]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"listens on" in process.stdout.readline()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            assert http.get("/v1/tables").json()["tables"][0]["name"] == "orders"
            answer = http.post("/v1/sql", json={"sql": "SELECT count(*) AS many FROM orders"})
            assert answer.json()["rows"] == [[6]]
            assert http.post("/v1/sql", json={"sql": "SELEC"}).status_code == 400
            assert http.post("/v1/sql", json={"sql": ""}).status_code == 400
            assert http.post("/v1/sql", json={"q": "SELECT 1"}).status_code == 400
    finally:
        process.kill()
        process.communicate()


def test_a_server_without_a_lake_says_so() -> None:
    with ServerProcess("--memory") as server:
        answer = httpx.get(f"{server.url}/v1/tables")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert httpx.post(f"{server.url}/v1/sql", json={"sql": "SELECT 1"}).status_code == 404
