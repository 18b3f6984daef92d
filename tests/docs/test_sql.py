"""The queries of the documentation, asked of tables as pipelines make them.

Spark is not needed to ask: tests/spark/test_up.py shows that the tables are these.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from headwater.cli.main import app
from tests.docs import commands
from tests.docs.markdown import DOCS, README, ROOT, TUTORIAL, Block, Page

PAGES = (README, TUTORIAL, DOCS / "howto" / "spark.md", ROOT / "examples" / "orders" / "README.md")
WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
LOBBY = ("ada", "bob", "cyd", "ada", "dan", "eve", "bob", "bot")
SALES = ("tea", "cake", "tea", "juice")


def queries(block: Block) -> list[list[str]]:
    return [words for words in commands.commands(block) if words[0] == "sql"]


def executes(block: Block) -> bool:
    """Whether a block is nothing but queries, all of which are asked here."""
    return block.language == "sh" and 0 < len(queries(block)) == len(block.text.splitlines())


def archive(values: list[str], **columns: list[Any]) -> pa.Table:
    """Messages, one a row, with some of their fields."""
    count = len(values)
    kept = {
        "offset": [f"{0:016d}_{at:016d}" for at in range(count)],
        "index": [0] * count,
        "timestamp": [WHEN] * count,
        "value": values,
        "date": [date(2026, 1, 2)] * count,
    }
    return pa.table(kept | columns)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of the demo, with those of a reader, and the tables of a shop."""
    root = tmp_path_factory.mktemp("documented")
    customers = {"key": ["c1"], "name": ["Ada"], "city": ["Lyon"], "visits": [7]}
    counted = {"window_start": [WHEN], "stream": ["demo/sales"], "messages": [4], "bytes": [90]}
    tables = {
        "demo/rollup": pa.table(counted),
        "demo/archive/demo.sales": archive([f'{{"item":"{i}"}}' for i in SALES], item=[*SALES]),
        "demo/archive/demo.customers": archive(['{"key":"c1"}']),
        "demo/archive/orders": archive(['{"id":1}']),
        "demo/archive/visits": archive(['{"page":"/"}'], page=["/"], ms=[12]),
        "demo/archive/rooms.lobby": archive([f'{{"from":"{one}"}}' for one in LOBBY]),
        "shop/archive/shop.orders": archive(['{"id":1}']),
        "shop/archive/shop.shipments": archive(['{"order":1}']),
        "demo/state/demo.customers/customers": pa.table(customers),
        "shop/state/shop.state/order": pa.table({"key": ["1"], "status": ["packed"]}),
    }
    for path, table in tables.items():
        write_deltalake(root / path, table)
    return {"demo": root / "demo", "shop": root / "shop"}


def every_query() -> list[object]:
    return [
        pytest.param(block, words, id=f"{page.parent.name}-{page.stem}-{block.line}-{number}")
        for page in PAGES
        for block in Page(page).blocks
        if block.language == "sh"
        for number, words in enumerate(queries(block))
    ]


@pytest.mark.parametrize("block, words", every_query())
def test_a_query(block: Block, words: list[str], lakes: dict[str, Path]) -> None:
    if "--root" in words:
        words[words.index("--root") + 1] = str(lakes["shop"])
    else:
        words += ["--root", str(lakes["demo"])]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert len(ran.stdout.splitlines()) > 1, ran.stdout
    if len(queries(block)) == 1 and executes(block):
        assert block.missing_from(ran.stdout) is None, ran.stdout
