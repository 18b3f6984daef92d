"""sql: questions to tables, without Spark."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.exits import CliError
from headwater.cli.tables import sql
from headwater.cli.tables.lake import LakeTable, ask, names_of, rows_of, shortest_name
from tests.cli.conftest import Run

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A root with tables as pipelines leave them, and what else they leave there."""
    root = tmp_path / "lake"
    tables = {
        "archive/shop.orders": {"value": ['{"id":1}', '{"id":2}'], "timestamp": [MOMENT, MOMENT]},
        "archive/shop.customers": {"value": ["change"]},
        "archive/shop": {"value": ["a stream beside others below it"]},
        "state/shop.customers/customers": {"key": ["ann"], "value": ["[31m\nred"]},
        "state/shop.customers/_aside": {"value": ["not for people"]},
        "rollup": {"stream": ["shop/orders"], "messages": [2]},
    }
    for path, columns in tables.items():
        write_deltalake(root / path, pa.table(columns))
    (root / "_pipelines" / "archive-all" / "checkpoint").mkdir(parents=True)
    return root


def test_the_tables(run: Run, lake: Path) -> None:
    listed = run("sql", "--root", str(lake), "--json").records
    assert {one["table"]: one["path"] for one in listed} == {
        "rollup": "rollup",
        "customers": "state/shop.customers/customers",
        "shop": "archive/shop",
        "archive_shop_customers": "archive/shop.customers",
        "orders": "archive/shop.orders",
    }


@pytest.mark.parametrize(
    "name", ["orders", "ORDERS", '"orders"', "archive_shop_orders", '"archive/shop.orders"']
)
def test_names(run: Run, lake: Path, name: str) -> None:
    ran = run("sql", f"SELECT count(*) AS n FROM {name}", "--root", str(lake), "--json")
    assert ran.record == {"n": 2}


def test_forms(run: Run, lake: Path) -> None:
    root = ("--root", str(lake))
    question = "SELECT value, timestamp, 2 AS n, null AS none FROM orders ORDER BY value"
    assert run("sql", question, *root).lines == [
        "value     timestamp                n  none",
        '{"id":1}  2026-01-02 03:04:05.678  2      ',
        '{"id":2}  2026-01-02 03:04:05.678  2      ',
    ]
    first = run("sql", question, *root, "--json").records[0]
    assert first == {
        "value": '{"id":1}',
        "timestamp": "2026-01-02T03:04:05.678000Z",
        "n": 2,
        "none": None,
    }
    rows = [*csv.reader(run("sql", question, *root, "--csv").lines)]
    assert rows[:2] == [
        ["value", "timestamp", "n", "none"],
        ['{"id":1}', "2026-01-02 03:04:05.678", "2", ""],
    ]


def test_json_is_looked_into(run: Run, lake: Path) -> None:
    question = """SELECT value->>'id' AS id, CAST(value->'id' AS INT) + 1 AS next,
        json_extract(value, '$.id') AS raw, json_type(value) AS type FROM orders ORDER BY id"""
    first = run("sql", question, "--root", str(lake), "--json").records[0]
    assert first == {"id": "1", "next": 2, "raw": "1", "type": "OBJECT"}


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM parquet_scan('{file}')",
        "WITH x AS (SELECT 1) SELECT * FROM root",
        "SELECT 1; SET enable_external_access = true",
        "SELECT 1; COPY (SELECT 1) TO '{file}'",
        "SELECT 1; ATTACH '{file}' AS other",
        "SELECT 1; INSTALL httpfs",
        "SELECT 1; LOAD httpfs",
    ],
)
def test_nothing_but_tables_is_read_or_written(lake: Path, tmp_path: Path, question: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n")
    with pytest.raises(CliError):
        print([*rows_of(ask(str(lake), question.format(file=file)))])
    assert file.read_text() == "secret\n"


def test_what_is_in_a_table_does_not_reach_the_terminal(run: Run, lake: Path) -> None:
    assert "\x1b" not in run("sql", "SELECT * FROM customers", "--root", str(lake)).out


def test_two_columns_of_one_name(run: Run, lake: Path) -> None:
    question = "SELECT a.stream, b.stream FROM rollup a, rollup b"
    ran = run("sql", question, "--root", str(lake))
    assert ran.lines[1].split() == ["shop/orders", "shop/orders"]


def test_a_long_answer_is_cut_for_people(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "ROWS_SHOWN_MAX", 1)
    question = ("sql", "SELECT value FROM orders", "--root", str(lake))
    ran = run(*question)
    assert (len(ran.lines), "--json and --csv" in ran.err) == (2, True)
    assert len(run(*question, "--json").lines) == 2


def test_questions_that_make_no_sense(run: Run, lake: Path) -> None:
    root = ("--root", str(lake))
    unknown = run("sql", "SELECT * FROM nothing", *root, code=3).err
    assert "there is no table 'nothing'" in unknown
    assert "orders" in unknown
    near = run("sql", "SELECT * FROM ordres", *root, code=3).err
    assert near.strip().endswith("; did you mean orders?")
    assert '"nothing" not found' in run("sql", "SELECT nothing FROM orders", *root, code=2).err
    assert "syntax error" in run("sql", "SELECT * FROM orders WHERE", *root, code=2).err
    conversion = "SELECT CAST(value AS INT) FROM orders"
    assert "Could not convert" in run("sql", conversion, *root, code=1).err
    assert "not both" in run("sql", "SELECT 1", *root, "--json", "--csv", code=2).err
    for change in ("DROP TABLE orders", "INSERT INTO orders VALUES (1)", "COPY orders TO 'x'", ""):
        assert "only questions" in run("sql", change, *root, code=2).err


def test_before_the_first_batch(run: Run, tmp_path: Path) -> None:
    nowhere = ("--root", str(tmp_path / "lake"))
    assert "first batch is on its way" in run("sql", *nowhere, code=3).err
    assert "first batch is on its way" in run("sql", "SELECT * FROM x", *nowhere, code=3).err
    assert run("sql", "SELECT 1 AS one", *nowhere, "--json").record == {"one": 1}


words = st.text("ab-_", min_size=1, max_size=3)
paths = st.builds(
    "/".join,
    st.tuples(st.sampled_from(["archive", "state"]), words, words)
    | st.tuples(st.sampled_from(["archive", "state"]), words),
)


@given(st.lists(paths, unique=True))
def test_a_name_means_one_table(found: list[str]) -> None:
    tables = [LakeTable(path, path) for path in found]
    names = names_of(tables)
    for name, table in names.items():
        alike = [one for one in tables if name in (one.word, one.last_word)]
        # Tables that share a name give way to a state, or get a longer name.
        assert table in alike
        assert [one for one in alike if one.word == name] in ([], [table])
    for table in tables:
        shortest = shortest_name(table, names)
        assert shortest == f'"{table.path}"' or names[shortest] == table
