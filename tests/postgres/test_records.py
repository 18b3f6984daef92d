"""What becomes of rows and changes, from a real PostgreSQL to a real stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.postgres.conftest import Pipe, Record, TestDatabase


def essence(records: list[Record]) -> list[tuple[Any, ...]]:
    return [
        (r["headers"].get("operation"), r["type"], r["key"], r.get("value"), r.get("old_value"))
        for r in records
    ]


async def test_every_operation_with_before_images(db: TestDatabase, pipe: Pipe) -> None:
    db.execute("CREATE TABLE todo (id int PRIMARY KEY, text text)")
    db.execute("ALTER TABLE todo REPLICA IDENTITY FULL")
    db.publish()
    db.execute(
        "INSERT INTO todo VALUES (1, 'tea')",
        "UPDATE todo SET text = 'cake' WHERE id = 1",
        "UPDATE todo SET id = 2 WHERE id = 1",
        "DELETE FROM todo WHERE id = 2",
    )
    records = await pipe.catch_up()
    tea, cake, moved = (
        {"id": 1, "text": "tea"},
        {"id": 1, "text": "cake"},
        {"id": 2, "text": "cake"},
    )
    assert essence(records) == [
        ("insert", "public.todo", "1", tea, None),
        ("update", "public.todo", "1", cake, tea),
        ("delete", "public.todo", "1", None, cake),
        ("insert", "public.todo", "2", moved, None),
        ("delete", "public.todo", "2", None, moved),
    ]
    assert not any("old_value" in said for said in pipe.said)
    headers = records[0]["headers"]
    ((txid, at),) = db.rows("SELECT txid_current(), now()")
    assert 0 < int(headers["txid"]) < txid
    assert headers["timestamp"].endswith("Z")
    assert headers["timestamp"] < at.isoformat()
    assert [r["headers"]["lsn"] for r in records] == sorted(r["headers"]["lsn"] for r in records)
    assert records == await db.committed()


async def test_without_before_images_there_is_one_warning(db: TestDatabase, pipe: Pipe) -> None:
    db.execute("CREATE TABLE todo (id int PRIMARY KEY, text text)")
    db.publish()
    db.execute(
        "INSERT INTO todo VALUES (1, 'tea'), (2, 'cake')",
        "UPDATE todo SET text = 'jam'",
        "UPDATE todo SET id = 3 WHERE id = 1",
        "DELETE FROM todo WHERE id = 2",
    )
    assert essence(await pipe.catch_up())[2:] == [
        ("update", "public.todo", "1", {"id": 1, "text": "jam"}, None),
        ("update", "public.todo", "2", {"id": 2, "text": "jam"}, None),
        ("delete", "public.todo", "1", None, None),
        ("insert", "public.todo", "3", {"id": 3, "text": "jam"}, None),
        ("delete", "public.todo", "2", None, None),
    ]
    (warning,) = [said for said in pipe.said if "old_value" in said]
    assert "ALTER TABLE public.todo REPLICA IDENTITY FULL" in warning


VALUES: list[tuple[str, str, Any]] = [
    ("smallint", "-32768", -32768),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("numeric", "12345678901234567890.1234567890", "12345678901234567890.1234567890"),
    ("real", "1.5", 1.5),
    ("double precision", "0.1", 0.1),
    ("double precision", "1e300", 1e300),
    ("double precision", "'NaN'", "NaN"),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("boolean", "true", True),
    ("text", "E'line\\nquote\" and \\u2028 ☕'", 'line\nquote" and \u2028 ☕'),
    ("char(3)", "'a'", "a  "),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("timestamptz", "'2026-01-31 13:00:00.5+01'", "2026-01-31T12:00:00.5Z"),
    ("timestamptz", "'infinity'", "infinity"),
    ("timestamp", "'2026-01-31 13:00'", "2026-01-31T13:00:00"),
    ("date", "'2026-01-31'", "2026-01-31"),
    ("time", "'13:00'", "13:00:00"),
    ("interval", "'1 day 2 hours'", "P1DT2H"),
    ("json", '\'{"b": 1, "a": [1.10, null]}\'', {"b": 1, "a": [1.1, None]}),
    ("jsonb", "'\"text\"'", "text"),
    ("jsonb", "'null'", None),
    ("json", "'\"\\ud800\"'", '"\\ud800"'),
    ("bytea", "'\\x00ff10'", "AP8Q"),
    ("int[]", "'{1,NULL,3}'", [1, None, 3]),
    ("int[]", "'{}'", []),
    ("int[]", "'[0:1]={7,8}'", [7, 8]),
    ("int[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    ("text[]", """ARRAY['a,b', '', 'NULL', NULL, '{"', E'\\\\', 'ü']""", None),
    ("boolean[]", "'{t,f}'", [True, False]),
    ("bytea[]", """ARRAY['\\x6869'::bytea]""", ["aGk="]),
    ("jsonb[]", """ARRAY['{"a": [1]}'::jsonb]""", [{"a": [1]}]),
    ("timestamptz[]", "ARRAY['2026-01-31 12:00:00Z'::timestamptz]", ["2026-01-31T12:00:00Z"]),
    ("mood", "'happy'", "happy"),
    ("mood[]", "'{happy,sad}'", ["happy", "sad"]),
    ("amount", "12", 12),
    ("amount[]", "'{1,2}'", [1, 2]),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("text", "NULL", None),
]


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
async def test_types(db: TestDatabase, pipe: Pipe, snapshot: bool) -> None:
    db.execute("CREATE TYPE mood AS ENUM ('happy', 'sad')", "CREATE DOMAIN amount AS bigint")
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(VALUES))
    insert = f"INSERT INTO types VALUES (1, {', '.join(text for _, text, _ in VALUES)})"
    db.execute(f"CREATE TABLE types (id int PRIMARY KEY, {columns})")
    # What a role is set to must not show in the records.
    db.execute(
        "ALTER DATABASE postgres SET timezone = 'Asia/Tokyo'",
        "ALTER DATABASE postgres SET datestyle = 'German'",
        "ALTER DATABASE postgres SET bytea_output = 'escape'",
    )
    if snapshot:
        db.execute(insert)
        _, record, _ = await pipe.catch_up(snapshot=True)
    else:
        db.publish()
        db.execute(insert)
        (record,) = await pipe.catch_up()
    expected = {f"c{n}": value for n, (_, _, value) in enumerate(VALUES)}
    texts = next(n for n, (kind, _, _) in enumerate(VALUES) if kind == "text[]")
    expected[f"c{texts}"] = ["a,b", "", "NULL", None, '{"', "\\", "ü"]
    assert record["value"] == {"id": 1, **expected}


async def test_bigint_keeps_its_digits_on_the_wire(db: TestDatabase, pipe: Pipe) -> None:
    db.execute("CREATE TABLE big (id bigint PRIMARY KEY, n numeric)")
    db.publish()
    db.execute("INSERT INTO big VALUES (9007199254740993, 0.10)")
    await pipe.catch_up()
    stored = await pipe.client.stream(pipe.path).read_text()
    assert '"key":"9007199254740993","value":{"id":9007199254740993,"n":"0.10"}' in stored


async def test_keys(db: TestDatabase, pipe: Pipe) -> None:
    db.execute(
        "CREATE TABLE pair (a text, b int, PRIMARY KEY (b, a))",
        "CREATE TABLE word (w text PRIMARY KEY)",
        "CREATE TABLE code (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE code REPLICA IDENTITY USING INDEX code_code_key",
        "CREATE TABLE loose (a int, b text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        'CREATE SCHEMA "Odd"',
        'CREATE TABLE "Odd"."Name" ("Id" int PRIMARY KEY)',
    )
    db.publish()
    db.execute(
        "INSERT INTO pair VALUES ('x,y', 1)",
        """INSERT INTO word VALUES (''), ('plain'), ('[""]')""",
        "INSERT INTO code VALUES (1, 'first')",
        "DELETE FROM code",
        "INSERT INTO loose VALUES (1, NULL)",
        "UPDATE loose SET b = 'b'",
        'INSERT INTO "Odd"."Name" VALUES (1)',
    )
    records = await pipe.catch_up()
    assert [(r["type"], r["key"], r["headers"]["operation"]) for r in records] == [
        ("public.pair", '["x,y","1"]', "insert"),
        ("public.word", '[""]', "insert"),
        ("public.word", "plain", "insert"),
        ("public.word", '["[\\"\\"]"]', "insert"),
        ("public.code", "first", "insert"),
        ("public.code", "first", "delete"),
        ("public.loose", '["1",null]', "insert"),
        ("public.loose", '["1",null]', "delete"),
        ("public.loose", '["1","b"]', "insert"),
        ("Odd.Name", "1", "insert"),
    ]
    assert any("public.loose has no primary key" in said for said in pipe.said)


async def test_large_values_that_an_update_leaves_alone(db: TestDatabase, pipe: Pipe) -> None:
    """Their text is not in the log. It is taken from the old row, or left out by name."""
    for table in ("plain", "complete"):
        db.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int, big text)",
            f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL",
        )
    db.execute("ALTER TABLE complete REPLICA IDENTITY FULL")
    db.publish()
    big = "x" * 10_000
    for table in ("plain", "complete"):
        db.execute(
            f"INSERT INTO {table} VALUES (1, 1, repeat('x', 10000))",
            f"UPDATE {table} SET n = 2",
            f"UPDATE {table} SET big = 'small'",
        )
    _, plain, changed, _, complete, _ = await pipe.catch_up()
    assert plain["value"] == {"id": 1, "n": 2}
    assert plain["headers"]["unchanged"] == ["big"]
    assert changed["value"] == {"id": 1, "n": 2, "big": "small"}
    assert "unchanged" not in changed["headers"]
    assert complete["value"] == {"id": 1, "n": 2, "big": big}
    assert complete["old_value"] == {"id": 1, "n": 1, "big": big}
    assert "unchanged" not in complete["headers"]


async def test_a_transaction_over_several_tables_keeps_its_order(
    db: TestDatabase, pipe: Pipe
) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    db.publish()
    with db.connect() as other, other.transaction():
        other.execute("INSERT INTO a VALUES (1)")
        db.execute("INSERT INTO b VALUES (100)")  # begun later, committed earlier
        other.execute("INSERT INTO b VALUES (2)")
        other.execute("INSERT INTO a VALUES (3)")
    with db.connect() as other:
        other.execute("BEGIN; INSERT INTO a VALUES (4); ROLLBACK")
    records = await pipe.catch_up()
    assert [(r["type"], r["key"], r["headers"]["seq"]) for r in records] == [
        ("public.b", "100", 0),
        ("public.a", "1", 0),
        ("public.b", "2", 1),
        ("public.a", "3", 2),
    ]
    assert len({r["headers"]["txid"] for r in records[1:]}) == 1
    assert len({r["headers"]["lsn"] for r in records}) == 2


async def test_truncate_is_a_reset(db: TestDatabase, pipe: Pipe) -> None:
    db.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    db.publish()
    db.execute("INSERT INTO a VALUES (1)", "TRUNCATE a, b", "INSERT INTO a VALUES (2)")
    first, reset, second = await pipe.catch_up()
    assert (first["key"], second["key"]) == ("1", "2")
    assert reset["headers"]["control"] == "reset"
    assert reset["headers"]["tables"] == ["public.a", "public.b"]
    assert "type" not in reset


async def test_tables_may_change_while_they_are_followed(db: TestDatabase, pipe: Pipe) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    db.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    db.publish()
    stop = asyncio.Event()
    following = asyncio.create_task(pipe.follower().run(stop))
    db.execute(
        "INSERT INTO t VALUES (1, 'x')",
        "ALTER TABLE t ADD b int DEFAULT 7",
        "UPDATE t SET a = 'y'",
        "ALTER TABLE t DROP a",
        "INSERT INTO t VALUES (2, 8)",
        "ALTER TABLE t RENAME b TO c",
        "ALTER TABLE t ALTER c TYPE text",
        "UPDATE t SET c = 'text' WHERE id = 2",
        "ALTER TABLE t RENAME TO u",
        "INSERT INTO u VALUES (3, 'z')",
        "CREATE TABLE later (id int PRIMARY KEY)",
        "INSERT INTO later VALUES (1)",
    )
    stop.set()
    await following
    assert essence(await pipe.catch_up()) == [
        ("insert", "public.t", "1", {"id": 1, "a": "x"}, None),
        ("update", "public.t", "1", {"id": 1, "a": "y", "b": 7}, {"id": 1, "a": "x", "b": 7}),
        ("insert", "public.t", "2", {"id": 2, "b": 8}, None),
        ("update", "public.t", "2", {"id": 2, "c": "text"}, {"id": 2, "c": "8"}),
        ("insert", "public.u", "3", {"id": 3, "c": "z"}, None),
        ("insert", "public.later", "1", {"id": 1}, None),
    ]


async def test_partitions_are_one_table(db: TestDatabase, pipe: Pipe) -> None:
    db.execute(
        "CREATE TABLE m (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20)",
        "INSERT INTO m VALUES (1), (11)",
    )
    await pipe.catch_up(snapshot=True)
    db.execute("INSERT INTO m VALUES (2), (12)")
    records = await pipe.catch_up()
    assert [r.get("type") for r in records] == [None, *["public.m"] * 2, None, *["public.m"] * 2]
    assert [r["key"] for r in records if "key" in r] == ["1", "11", "2", "12"]


async def test_a_publication_may_leave_out_rows_and_columns(db: TestDatabase, pipe: Pipe) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, open bool, secret text, twice int GENERATED ALWAYS"
        " AS (id * 2) STORED)",
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        "CREATE PUBLICATION headwater FOR TABLE t (id, open) WHERE (id < 10)",
        "INSERT INTO t VALUES (1, true, 's'), (10, true, 's')",
    )
    await pipe.catch_up(snapshot=True)
    db.execute("INSERT INTO t VALUES (2, false, 's'), (11, true, 's')")
    db.execute("INSERT INTO hidden VALUES (1)")
    records = await pipe.catch_up()
    assert [r["value"] for r in records if "value" in r] == [
        {"id": 1, "open": True},
        {"id": 2, "open": False},
    ]
