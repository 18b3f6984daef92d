"""Pipelines: streams into tables, whatever is run again."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.client import MaterializedState
from headwater.core import pipelines
from pyspark_headwater.errors import InvalidOption, OtherWriter
from pyspark_headwater.pipelines import buckets, delta, jobs, state, transforms, upkeep
from pyspark_headwater.pipelines import session as session_module
from pyspark_headwater.pipelines.__main__ import main as submitted
from pyspark_headwater.pipelines.archive import Archive
from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.jobs import Job, Rollup, with_patience
from pyspark_headwater.pipelines.layout import columns_of
from pyspark_headwater.pipelines.open_tables import OpenTables, open_table
from pyspark_headwater.pipelines.replay import replay
from pyspark_headwater.pipelines.reporting import Progress, noted
from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.pipelines.state import Materialize, state_layout
from pyspark_headwater.tables import HeadwaterTables
from tests.spark.values import entities, says_the_same
from tests.spark.world import World, rows_of


def put(key: str, value: Any, kind: str = "user", operation: str = "upsert") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value, "headers": {"operation": operation}}


def gone(key: str, kind: str = "user") -> dict[str, Any]:
    return {"type": kind, "key": key, "headers": {"operation": "delete"}}


def control(name: str) -> dict[str, Any]:
    return {"headers": {"control": name}}


def pipeline(
    world: World, kind: pipelines.Pipeline, name: str = "events", **options: object
) -> Pipeline:
    return Pipeline(kind, str(world.directory / "lake"), world.options(name, **options))


def tables(spark: SparkSession, world: World) -> HeadwaterTables:
    return HeadwaterTables(spark, world.url, str(world.directory / "lake"))


# ── archive ──────────────────────────────────────────────────────────────────────────────────


def test_an_archive_and_its_live_end(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [{"n": 1}, {"n": 2}], [{"n": 3}])
    seen: list[Progress] = []
    job = pipeline(world, "archive", maxOffsetsPerTrigger=2)
    run(spark, job, seen.append)
    assert [one.rows for one in seen] == [2, 1]
    assert all(one.batch_ms > 0 for one in seen)
    assert (seen[-1].lag_messages, seen[-1].lag_s) == (0, 0.0)
    stream.append({"n": 4})
    assert [one.name for one in noted(job.root)] == [job.name]

    def numbers() -> list[int]:
        table = tables(spark, world).table(world.name())
        return sorted(json.loads(row.value)["n"] for row in table.collect())

    assert numbers() == [1, 2, 3, 4]
    stored = rows_of(f"{job.root}/archive/{world.table()}")
    assert sorted(json.loads(row["value"])["n"] for row in stored) == [1, 2, 3]
    assert {*stored[0]} == {"offset", "index", "timestamp", "value", "date", "n"}
    assert sorted(row["n"] for row in stored) == [1, 2, 3]
    run(spark, job)
    assert numbers() == [1, 2, 3, 4]


def test_a_batch_is_archived_once(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.stream("a", [1, 2])
    world.stream("b", [3])
    batch = world.batch(spark, None, streamPattern=f"{world.prefix}/*")
    archive = Archive(str(world.directory / "lake"))
    monkeypatch.setattr(upkeep, "COMPACT_AFTER_FILES", 2)
    for commit in (Commit("q", 0), Commit("q", 0), Commit("another checkpoint", 0)):
        archive(batch, commit)
    world.client.stream(world.name("a")).append(4)
    archive(batch, Commit("q", 1))
    found = tables(spark, world)
    assert sorted(row.value for row in found.table(world.name("a")).collect()) == ["1", "2", "4"]
    assert [row.value for row in found.table(world.name("b")).collect()] == ["3"]
    # Two small files have become one.
    (file,) = DeltaTable(f"{archive.root}/archive/{world.table('a')}").file_uris()
    assert f"/date={datetime.now(UTC).date()}/" in file
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_stream_created_anew_is_taken_in_whole(spark: SparkSession, world: World) -> None:
    """And once, also by a query that starts over. Its state has nothing of its predecessor's."""
    root = str(world.directory / "lake")
    jobs = (Archive(root), Rollup(root, 1), Materialize(root))
    for number, key in enumerate("abb"):
        if number:
            world.client.stream(world.name()).delete()
        world.stream("events", [put(key, number), put("c", number)], [put("d", number)])
        for job in jobs:
            job(world.batch(spark), Commit("q", number))
    for job in jobs:
        job(world.batch(spark), Commit("another checkpoint", 0))
    stored = [json.loads(row["value"]) for row in rows_of(f"{root}/archive/{world.table()}")]
    numbers = sorted((one["key"], one["value"]) for one in stored)
    assert numbers == [("a", 0), ("b", 1), ("b", 2), *((k, n) for k in "cd" for n in range(3))]
    assert sum(row["messages"] for row in rows_of(f"{root}/rollup")) == 9
    state = rows_of(f"{root}/state/{world.table()}/user")
    assert sorted((row["key"], row["_value"]) for row in state) == [(k, "2") for k in "bcd"]


def test_files_that_were_replaced_go_in_the_end(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TIDY_EVERY", 1)
    root = str(world.directory / "lake")
    stream = world.stream("events", [1])
    for number, hours in enumerate([1, 1, 0]):
        Rollup(root, 1, OpenTables(hours))(world.batch(spark), Commit("q", number))
        stream.append(number)
        files = {*Path(f"{root}/rollup").glob("date=*/*.parquet")}
        assert len(files) == (1 if hours == 0 else number + 1)
    configuration = DeltaTable(f"{root}/rollup").metadata().configuration
    assert configuration["delta.deletedFileRetentionDuration"] == "interval 1 minutes"


def test_two_writers(spark: SparkSession, world: World) -> None:
    """Whoever is slower makes its batch again, and nothing is stored twice."""
    root = str(world.directory / "lake")
    stream = world.stream("events", [put("a", 1)])
    kinds: list[Callable[[], Job]] = [
        lambda: Archive(root),
        lambda: Rollup(root, 1),
        lambda: Materialize(root),
    ]
    pairs = [(make(), make()) for make in kinds]
    for first, second in pairs:
        first(world.batch(spark), Commit("first", 0))
        second(world.batch(spark), Commit("second", 0))
    stream.append(put("b", 2))
    for first, second in pairs:
        # The second one knows the table as it was before the first one's batch.
        with_patience(first, world.batch(spark), Commit("first", 1))
        with pytest.raises(OtherWriter, match="something else writes to the table"):
            second(world.batch(spark), Commit("second", 1))
        with_patience(second, world.batch(spark), Commit("second", 1))
    assert len(rows_of(f"{root}/archive/{world.table()}")) == 2
    assert sum(row["messages"] for row in rows_of(f"{root}/rollup")) == 2
    assert {row["key"] for row in rows_of(f"{root}/state/{world.table()}/user")} == {"a", "b"}


def test_a_writer_that_is_always_slower_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_PAUSE_S", 0)

    class Slower:
        tables = OpenTables()

        def __call__(self, batch: DataFrame, commit: Commit) -> None:
            raise OtherWriter("something else writes to the table t")

    with pytest.raises(OtherWriter, match=r"the table t; .* 8 times in a row. Let one pipeline"):
        with_patience(Slower(), spark.range(1), Commit("q", 0))


def test_a_checkpoint_is_that_of_its_streams(spark: SparkSession, world: World) -> None:
    world.stream("a/b", [1])
    world.stream("a-b", [2], [3])
    run(spark, pipeline(world, "archive", "a/b"))
    other = pipeline(world, "archive", "a-b")
    with pytest.raises(InvalidOption, match=r"that of pipeline archive, stream .*a/b, not of"):
        run(spark, other)
    run(spark, dataclasses.replace(other, called="another"))
    assert len(rows_of(f"{other.root}/archive/{world.table('a-b')}")) == 2


def test_days_are_those_of_utc(spark: SparkSession) -> None:
    rows = [("s", "0", 0, datetime(2026, 1, 1, 23, 30, tzinfo=UTC), "1")]
    columns = "stream string, offset string, index int, timestamp timestamp, value string"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        messages = spark.createDataFrame(rows, columns)
        days = [
            transforms.archived(messages).collect()[0].date,
            transforms.rolled_up(messages, 5).collect()[0].date,
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert days == [date(2026, 1, 1)] * 2


def test_a_table_outlives_its_stream(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [1, 2], [3])
    archive = Archive(str(world.directory / "lake"))
    archive(world.batch(spark), Commit("q", 0))

    def values() -> list[str]:
        return sorted(row.value for row in tables(spark, world).table(world.name()).collect())

    before = tables(spark, world).table(world.name())
    stream.append(4)
    assert values() == ["1", "2", "3", "4"]
    assert before.count() == 3, "a table is that of the moment when it was asked for"
    stream.delete()
    assert values() == ["1", "2", "3"]
    world.stream("events", [5, 6])
    assert values() == ["1", "2", "3", "5", "6"]
    # The offset of the new stream's only append is that of the old one's first.
    archive(world.batch(spark), Commit("q", 1))
    assert values() == ["1", "2", "3", "5", "6"]
    world.client.stream(world.name()).delete()
    world.stream("events", [7])
    assert values() == ["1", "2", "3", "5", "6", "7"]
    replay(
        spark,
        f"{archive.root}/archive/{world.table()}",
        world.options("copy"),
        name="restore",
        version=1,
    )
    assert world.read("copy") == [1, 2, 3, 5, 6]


def test_a_table_that_was_never_archived(spark: SparkSession, world: World) -> None:
    world.stream("events", [1])
    assert tables(spark, world).table(world.name()).count() == 1


# ── materialize and snapshot ─────────────────────────────────────────────────────────────────

KINDS = ("user", "order")
HISTORY = [
    [put("a", 1), put("b", {"x": [1.50]}), put("o", 1, "order")],
    [gone("a"), put("b", 2)],
    [put("c", "text"), control("snapshot-start"), put("d", None)],
    [put("e", 5), put("o", 2, "order")],
    [control("snapshot-end"), put("d", 6)],
    [gone("o", "order"), put("f", 7)],
    [control("reset"), put("g", 8)],
    [put("h", 9), control("snapshot-start"), put("never", 0)],
]


def state_of(world: World, name: str = "events") -> dict[tuple[str, str], Any]:
    tables = {kind: f"{world.directory}/lake/state/{world.table(name)}/{kind}" for kind in KINDS}
    return {
        (kind, row["key"]): json.loads(row["_value"])
        for kind, uri in tables.items()
        if DeltaTable.is_deltatable(uri)
        for row in rows_of(uri)
    }


def reference(messages: list[Any]) -> dict[tuple[str, str], Any]:
    state = MaterializedState()
    state.apply_messages(messages)
    return {(kind, key): state.get(kind, key) for kind, key in state}


def test_the_current_state(spark: SparkSession, world: World) -> None:
    stream = world.stream("events")
    job = Materialize(str(world.directory / "lake"))
    done: list[Any] = []
    for number, messages in enumerate(HISTORY):
        where = stream.head().next_offset
        stream.append_all(messages)
        done += messages
        places = json.dumps({world.name(): where})
        batch = world.batch(spark, startingOffsets=places)
        job(batch, Commit("q", number))
        if number % 3 == 0:
            job(batch, Commit("q", number))
        assert state_of(world) == reference(done), number
    # A new checkpoint reads everything again, and nothing goes backwards.
    job(world.batch(spark), Commit("another checkpoint", 0))
    assert state_of(world) == reference(done)
    users = rows_of(f"{job.root}/state/{world.table()}/user")
    assert sorted(row["key"] for row in users) == ["g", "h"]


changes = st.builds(
    lambda key, kind, value, lives: put(key, value, kind) if lives else gone(key, kind),
    st.sampled_from("abc"),
    st.sampled_from(KINDS),
    entities,
    st.sampled_from([True, True, False]),
)
controls = st.sampled_from(["snapshot-start", "snapshot-end", "reset"]).map(control)
appends = st.lists(changes | changes | changes | controls, min_size=1, max_size=5)
histories = st.lists(appends, min_size=2, max_size=9)
orders = st.sampled_from([[0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 1]])
"""In which the parts of a history come; what comes late comes with a checkpoint of its own."""


def moment(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)


def batch_of(spark: SparkSession, stream: str, first: int, part: list[Any]) -> DataFrame:
    """A batch without a server."""
    rows = [
        (stream, f"{1:016d}_{first + at:016d}", index, moment(first + at), json.dumps(message))
        for at, append in enumerate(part)
        for index, message in enumerate(append)
    ]
    columns = "stream string, offset string, index int, timestamp timestamp, value string"
    return spark.createDataFrame(rows, columns)


@settings(max_examples=5, suppress_health_check=[*HealthCheck])
@given(histories, st.integers(1, 8), orders)
def test_any_history_folds_as_the_client_folds_it(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    history: list[Any],
    cut: int,
    order: list[int],
) -> None:
    world = World(None, "", "any", tmp_path_factory.mktemp("any"))  # type: ignore[arg-type]
    job = Materialize(str(world.directory / "lake"))
    parts = [history[:cut], history[cut:]]
    for turn, number in enumerate(order):
        late = number < max(order[:turn], default=0)
        batch = batch_of(spark, world.name(), number * cut, parts[number])
        job(batch, Commit("late" if late else "q", number))
    expected = reference([one for append in history for one in append])
    assert state_of(world) == expected
    for kind in KINDS:
        values = {key: value for (type_, key), value in expected.items() if type_ == kind}
        check_columns(spark, world, kind, values)


def check_columns(spark: SparkSession, world: World, kind: str, values: dict[str, Any]) -> None:
    """The columns of the table hold what is in the values."""
    uri = f"{world.directory}/lake/state/{world.table()}/{kind}"
    columns = columns_of(open_table(uri))
    theirs = rows_of(uri) if columns else []
    ours = tables(spark, world).state(world.name(), kind).collect() if columns else []
    for rows in (theirs, [row.asDict() for row in ours]):
        assert sorted(row["key"] for row in rows) == sorted(values if columns else [])
        for row in rows:
            fields = values[row["key"]]
            for one in columns:
                field = fields.get(one.field) if isinstance(fields, dict) else None
                assert says_the_same(field, row[one.name], one.type), (one, field)


def test_columns_grow_and_widen(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "PARTS_AT_FIRST", 16)
    stream = world.stream("events")
    uri = f"{world.directory}/lake/state/{world.table()}/user"

    def take_in(*changes: Any) -> dict[str, str]:
        """The columns after some changes."""
        stream.append_all(changes)
        run(spark, pipeline(world, "materialize"))
        own = state_layout("", "").schema.fieldNames()
        fields = DeltaTable(uri).schema().fields
        return {one.name: one.type.type for one in fields if one.name not in own}

    assert take_in(put("a", {"n": 1, "at": None}), put("b", {"n": 2**60})) == {"n": "long"}
    first = {file: Path(file).stat().st_ino for file in DeltaTable(uri).file_uris()}
    # A new column changes none of the files that are there.
    assert take_in(put("c", {"at": "noon", "N": 0.5})) == {
        "n": "long",
        "N_2": "double",
        "at": "string",
    }
    assert first.keys() < set(DeltaTable(uri).file_uris())
    assert DeltaTable(uri).version() == 2
    # A column that becomes wider is made anew for all rows, and exactly.
    assert take_in(put("d", {"n": 0.5}))["n"] == "string"
    assert not first.keys() & set(DeltaTable(uri).file_uris())
    table = tables(spark, world).state(world.name(), "user")
    found = {row.key: (row.n, row.N_2, row.at) for row in table.collect()}
    assert found == {
        "a": ("1", None, None),
        "b": (str(2**60), None, None),
        "c": (None, 0.5, "noon"),
        "d": ("0.5", None, None),
    }
    assert {row["key"]: row["n"] for row in rows_of(uri)} == {k: v[0] for k, v in found.items()}
    # Who wants other columns says so.
    asked = tables(spark, world).state(world.name(), "user", "n double, at string")
    assert sorted(map(tuple, asked.collect()))[2:] == [("c", None, "noon"), ("d", 0.5, None)]
    assert tables(spark, world).state(world.name(), "unknown").count() == 0
    # The past stays what it was.
    past = DeltaTable(uri, version=2).to_pyarrow_table()
    assert sorted(pa.table(past)["n"].drop_null().to_pylist()) == [1, 2**60]


def test_a_table_has_more_parts_as_it_grows(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "ROWS_IN_A_PART_MAX", 10)
    stream = world.stream("events", [put("k0", {"n": 0})])
    job, uri = pipeline(world, "materialize"), f"{world.directory}/lake/state/{world.table()}/user"
    files = []
    for until in (1, 15, 16, 100):
        stream.append_all([put(f"k{n}", {"n": n}) for n in range(until)])
        run(spark, job)
        files.append(len(DeltaTable(uri).file_uris()))
        assert sorted(row["n"] for row in rows_of(uri)) == [*range(until)]
        found = tables(spark, world).state(world.name(), "user").collect()
        assert sorted(row.n for row in found) == [*range(until)]
    # One file for each part, and a part for every ten rows.
    assert files[0] == 1
    assert 2 <= files[1] <= files[2] <= 4
    assert 10 <= files[3] <= 32


def test_types_with_strange_names(spark: SparkSession, world: World) -> None:
    names = ["../../up", "_aside", ".hidden", "a/b", "a", "ä %2F", "*"]
    stream = world.stream("events", [put("k", {"n": 1}, name) for name in names])
    run(spark, pipeline(world, "materialize"))
    found = tables(spark, world)
    for name in names:
        assert [row.n for row in found.state(world.name(), name).collect()] == [1]
    stream.append(control("reset"))
    run(spark, pipeline(world, "materialize"))
    layout = state_layout(str(world.directory / "lake"), world.name())
    assert [rows_of(layout.uri(name)) for name in names] == [[]] * len(names)
    assert [one.name for one in world.directory.iterdir()] == ["lake"]


def test_a_crash_between_two_tables(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = world.stream("events", [put("a", 1), put("o", 1, "order")])
    job = pipeline(world, "materialize")
    run(spark, job)
    stream.append_all([put("a", 2), put("o", 2, "order")])
    commit_files = delta.commit_files
    orders = threading.Event()

    def failing(tables: Any, layout: Any, table: str, *arguments: Any, **more: Any) -> None:
        if table == "user":
            assert orders.wait(60), "the tables are written side by side"
            raise OSError("the driver dies here")
        commit_files(tables, layout, table, *arguments, **more)
        orders.set()

    monkeypatch.setattr(state, "commit_files", failing)
    with pytest.raises(PySparkException, match="the driver dies here"):
        run(spark, job)
    assert state_of(world) == {("user", "a"): 1, ("order", "o"): 2}
    monkeypatch.undo()
    run(spark, job)
    assert state_of(world) == {("user", "a"): 2, ("order", "o"): 2}


def test_snapshots_to_begin_with(spark: SparkSession, world: World) -> None:
    stream = world.stream("events")
    done: list[Any] = []
    for number, messages in enumerate(HISTORY):
        stream.append_all(messages)
        done += messages
        if number % 2:
            run(spark, pipeline(world, "snapshot"))
            latest = world.client.stream(f"{world.name()}")
            state = MaterializedState()
            answer = world.get(f"{latest.path}/_snapshots/latest")
            state.apply_messages(answer.json())
            state.apply_messages(latest.read_json(answer.headers["stream-next-offset"]))
            assert {(kind, key): state.get(kind, key) for kind, key in state} == reference(done)
            assert answer.headers["stream-next-offset"] > "0"


def test_what_is_no_change_is_named(spark: SparkSession, world: World) -> None:
    world.stream("events", [put("a", 1), {"type": "user", "key": "b", "headers": {}}])
    with pytest.raises(PySparkException, match=r"not a State Protocol message.*index 1"):
        run(spark, pipeline(world, "materialize"))


# ── rollup and replay ────────────────────────────────────────────────────────────────────────


def test_counts_and_sizes(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [put("a", 1), put("b", 2), put("c", 3, "order"), [1]])
    job = pipeline(world, "rollup")
    run(spark, job)
    stream.append(put("a", 4))
    run(spark, job)
    rows = tables(spark, world).rollup().groupBy("entity").sum("messages", "bytes").collect()
    counts = {row.entity: row["sum(messages)"] for row in rows}
    assert counts == {"user": 3, "order": 1, "": 1}
    assert sum(row["sum(bytes)"] for row in rows) == sum(
        len(row.value) for row in world.batch(spark).collect()
    )


def test_a_table_back_into_a_stream(spark: SparkSession, world: World) -> None:
    world.stream("events", [3, 1], [2])
    job = pipeline(world, "archive")
    run(spark, job)
    table = f"{job.root}/archive/{world.table()}"
    for _ in range(2):
        replay(spark, table, world.options("copy"), name="restore", version=1)
    assert world.read("copy") == [3, 1, 2]
    files = world.directory / "rows.jsonl"
    files.write_text('{"n": 1}\n{"n": 2}\n')
    replay(spark, str(files), world.options("rows"), form="json", name="load", version=1)
    assert world.read("rows") == [{"n": 1}, {"n": 2}]
    (world.directory / "rows.csv").write_text("item,price\ntea,3.5\ncake,4\n")
    lines = str(world.directory / "rows.csv")
    replay(spark, lines, world.options("lines"), form="csv", name="load", version=1)
    assert world.read("lines") == [{"item": "tea", "price": 3.5}, {"item": "cake", "price": 4.0}]


# ── The command ──────────────────────────────────────────────────────────────────────────────


def headwater(world: World, *arguments: str) -> tuple[int, str, str]:
    """The command in this process, so that it finds the session that runs."""
    environment = {"STREAM_URL": world.url, "HEADWATER_CONFIG": str(world.directory / "none")}
    ran = CliRunner().invoke(app, ["pipeline", *arguments], env=environment)
    return ran.exit_code, ran.stdout, ran.stderr


def test_pipelines_from_a_prompt(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [put("a", 1)])
    root = str(world.directory / "lake")
    where = ("--stream", world.name(), "--root", root)
    code, _, said = headwater(world, "run", "archive", *where)
    assert (code, "batch 0, 1 rows" in said) == (0, True), said
    reported = [line for line in headwater(world, "ls")[1].splitlines() if world.prefix in line]
    assert [line.split()[1] for line in reported] == ["ended"]
    stream.append(put("b", 2))
    code, out, _ = headwater(world, "status", "--root", root, "--json")
    status = json.loads(out)
    assert (code, status["pipeline"], status["lag_messages"]) == (0, "archive", 1)
    assert status["lag_s"] > 0
    table = f"{root}/archive/{world.table()}"
    code, _, said = headwater(world, "replay", table, world.name("copy"), "--name", "again")
    assert code == 0, said
    assert world.read("copy") == [put("a", 1)]


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (("replay", "{source}", "copy", "--name", "\n"), "name of the job"),
        (("replay", "{source}", "copy", "--name", "ö"), "name of the job"),
        (("replay", "{source}/none", "copy", "--name", "again"), "there is nothing at"),
        (("replay", "{source}", "copy", "--name", "again", "--master", "lokal"), "no master"),
        (("run", "archive", "--stream", "a", "--master", "spark:host"), "no master"),
        (("run", "snapshot", "--pattern", "a/*"), "takes one stream"),
        (("run", "archive", "--stream", "a", "--changes"), "no change feed"),
        (("run", "materialize", "--stream", "a", "--changes-to", "a"), "another stream"),
        (("run", "materialize", "--pattern", "a/*", "--changes-to", "b"), "put {stream} into"),
        (("run", "archive", "--pattern", "a*"), "cannot be part of a pattern"),
    ],
)
def test_what_makes_no_sense_does_not_start_spark(
    world: World, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session_module, "session", started)
    source = str(world.directory)
    given = [one.replace("{source}", source) for one in arguments]
    code, _, said = headwater(world, *given)
    assert code in (1, 2), said
    assert problem in said.replace("\n", " ")
    assert "starting Spark" not in said


def test_what_is_submitted(
    spark: SparkSession,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What `spark-submit` runs, in the session that is there."""
    world.stream("events", [1], [2])
    root = str(world.directory / "lake")
    where = ["--endpoint", world.url, "--pattern", f"{world.prefix}/*", "--root", root]
    options = ["--option", "maxOffsetsPerTrigger=1"]
    monkeypatch.setattr(sys, "argv", ["run.py", "archive", *where, *options])
    submitted()
    assert capsys.readouterr().out.count(": batch ") == 2
    assert len(rows_of(f"{root}/archive/{world.table()}")) == 2


def test_what_is_wrong_is_one_line(spark: SparkSession, world: World) -> None:
    root = ("--root", str(world.directory / "lake"))
    code, _, said = headwater(world, "run", "archve", "--stream", "x", *root)
    assert (code, "there is no pipeline 'archve'" in said) == (2, True)
    code, _, said = headwater(world, "run", "archive", "--stream", "nothing", *root)
    assert (code, "there is no stream 'nothing'" in said) == (1, True), said
    assert len(said.strip().splitlines()) == 2
    code, _, said = headwater(world, "status", *root)
    assert (code, "no pipeline has run" in said) == (0, True)
