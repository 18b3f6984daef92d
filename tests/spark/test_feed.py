"""The change feed of `materialize`: it says what happened to each row, once."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.pipelines import feed as feed_module
from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.feed import Feed, changes_layout
from pyspark_headwater.pipelines.merging import Change, Rewrite, changes_of
from pyspark_headwater.pipelines.replay import replay
from pyspark_headwater.pipelines.running import Pipeline
from pyspark_headwater.pipelines.state import Materialize
from tests.spark.arrow_frames import batch_of, without_spark
from tests.spark.test_pipelines import control, gone, pipeline, put, state_of
from tests.spark.world import World, rows_of

KEYS = st.sampled_from("abc")
CHANGES = st.dictionaries(KEYS, st.none() | st.sampled_from(["1", "2"]))


def held_rows(state: dict[str, str], offset: int) -> Any:
    return pa.table(
        {
            "key": pa.array([*state], pa.string()),
            "_value": pa.array([*state.values()], pa.string()),
            "_offset": pa.array([str(offset)] * len(state), pa.string()),
            "_index": pa.array([0] * len(state), pa.int32()),
        }
    )


@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=6))
def test_changes_lead_from_one_state_to_the_next(steps: list[tuple[dict[str, Any], bool]]) -> None:
    state: dict[str, str] = {}
    for step, (changes, void) in enumerate(steps, start=1):
        last: dict[str, Change] = {
            key: (str(step), 0, None, "delete" if value is None else "upsert", value)
            for key, value in changes.items()
        }
        expected = {} if void else dict(state)
        for key, value in changes.items():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        rewrite = Rewrite("", (), 1, void=void, feed="somewhere", until=(str(step), 9, 0))
        found = changes_of([held_rows(state, step - 1)], last, rewrite)
        followed = dict(state)
        for key, operation, before, after, *_ in found:
            assert before == followed.pop(key, None)
            assert before != after
            assert operation == {(True, False): "insert", (False, True): "delete"}.get(
                (before is None, after is None), "update"
            )
            if after is not None:
                followed[key] = after
        assert followed == expected
        # The same once more changes nothing.
        again = Rewrite("", (), 1, feed="somewhere")
        assert changes_of([held_rows(expected, step)], last, again) == []
        state = expected


def told(world: World) -> list[tuple[Any, ...]]:
    """What the table of changes says, in order."""
    layout = changes_layout(str(world.directory / "lake"), world.name())
    rows = rows_of(layout.uri("user"))
    rows.sort(key=lambda row: (row["offset"], row["index"], row["key"]))
    return [(row["key"], row["operation"], row["before"], row["after"]) for row in rows]


def sent(world: World, name: str = "feed") -> list[tuple[Any, ...]]:
    """What the stream of changes says."""
    return [
        (one["key"], one["headers"]["operation"], text(one, "old_value"), text(one, "value"))
        for one in world.read(name)
    ]


def text(message: dict[str, Any], name: str) -> str | None:
    """A value of a message as it was sent."""
    return msgspec.json.encode(message[name]).decode() if name in message else None


def test_changes_as_a_table_and_as_a_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    root = str(world.directory / "lake")
    options = world.options("events")
    job = Pipeline("materialize", root, options, changes_to=world.name("feed")).job()
    taken = 0

    def take_in(*changes: Any, commit: Commit | None = None, again: int = 0) -> None:
        """Take in some changes, and what came with the last batches once more."""
        nonlocal taken
        appends[taken] = changes
        taken += 1
        numbers = range(taken - 1 - again, taken)
        batch = batch_of(world.name(), {one: appends[one] for one in numbers})
        job(batch, commit or Commit("q", taken))

    appends: dict[int, Any] = {}
    take_in(put("a", 1), put("b", 2), put("b", 3), put("x", 1), gone("x"))
    first: list[tuple[Any, ...]] = [("a", "insert", None, "1"), ("b", "insert", None, "3")]
    assert told(world) == first
    take_in(put("b", 4), put("a", 1), put("c", {"n": 1}), gone("nobody"))
    second = [*first, ("b", "update", "3", "4"), ("c", "insert", None, '{"n":1}')]
    assert told(world) == sent(world) == second

    # Whatever breaks after the state is committed, the batch comes again, and nothing is lost.
    def broken(*_: Any) -> None:
        raise OSError("gone")

    for step, where, name in ((2, Feed, "_send"), (3, feed_module, "commit_files")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            with pytest.raises(OSError, match="gone"):
                take_in(put("d", step))
        job.tables.forget()
        # Another query, as after a start on another machine, that also reads what came since.
        take_in(put("e", step), commit=Commit(f"other {step}", 0), again=1)
    third = [
        *second,
        ("d", "insert", None, "2"),
        ("e", "insert", None, "2"),
        ("d", "update", "2", "3"),
        ("e", "update", "2", "3"),
    ]
    assert told(world) == sent(world) == third
    # A picture of all there is takes the place of what was there.
    take_in(control("snapshot-start"), put("a", 1), put("b", 5), control("snapshot-end"))
    removed = [("c", "delete", '{"n":1}', None), ("d", "delete", "3", None)]
    removed.append(("e", "delete", "3", None))
    assert told(world)[len(third) :] == [("b", "update", "4", "5"), *removed]
    assert sent(world) == told(world)
    # A chain: the stream of changes makes the same state.
    chained = batch_of(world.name("feed"), {0: world.read("feed")})
    Materialize(root)(chained, Commit("chain", 0))
    assert state_of(world, "feed") == state_of(world) == {("user", "a"): 1, ("user", "b"): 5}


def test_tables_become_streams_again(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their keys and in their order, and once."""
    root = str(world.directory / "lake")
    appends = [[put("b", 1), put("a", 1)], [put("b", {"n": "ä"}), gone("a")]]
    job = Pipeline("materialize", root, world.options("events"), changes=True).job()
    with monkeypatch.context() as patch:
        without_spark(patch)
        for number, messages in enumerate(appends):
            job(batch_of(world.name(), {number: messages}), Commit("q", number))
    for name, table in (("copy", "changes"), ("copy", "changes"), ("again", "state")):
        source = f"{root}/{table}/{world.table()}/user"
        replay(spark, source, world.options(name), name=table, version=1)
    assert sent(world, "copy") == told(world)
    assert [row[:2] for row in told(world)] == [
        ("b", "insert"),
        ("a", "insert"),
        ("b", "update"),
        ("a", "delete"),
    ]
    assert world.read("again") == [put("b", {"n": "ä"}, operation="insert")]


def test_each_of_several_streams_has_a_feed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    root = str(world.directory / "lake")
    options = world.options(None, streamPattern=f"{world.prefix}/*")
    feeds = f"changes/{{stream}}/{world.prefix}"
    job = Pipeline("materialize", root, options, changes_to=feeds).job()
    for number, name in enumerate(("one", "two")):
        world.stream(name, [put(name, 1)])
        job(batch_of(world.name(name), {0: [put(name, 1)]}), Commit("q", number))
    for name in ("one", "two"):
        feed = world.client.stream(f"changes/{world.name(name)}/{world.prefix}")
        assert [one["key"] for one in feed.read_json()] == [name]


def test_what_makes_no_sense(world: World) -> None:
    for kind in ("archive", "rollup", "snapshot"):
        with pytest.raises(InvalidOption, match="no change feed"):
            Pipeline(kind, "lake", world.options(), changes=True)
    with pytest.raises(InvalidOption, match="another stream"):
        Pipeline("materialize", "lake", world.options(), changes_to=world.name()).job()
    for name in ("{stream}", world.name()):
        with pytest.raises(InvalidOption, match="another stream"):
            Pipeline("materialize", "lake", world.options(), changes_to=name).check()
    several = world.options(None, streamPattern="shops/*")
    with pytest.raises(InvalidOption, match=r"put \{stream\} into the name"):
        Pipeline("materialize", "lake", several, changes_to="feed").check()
    for pattern, name in (
        ("**", "changes/{stream}"),
        ("/shops/**", "{stream}/changes"),
        ("shops/*", "{stream}"),
        ("shops/>", "shops/{stream}"),
    ):
        several["streamPattern"] = pattern
        with pytest.raises(InvalidOption, match="keeps them apart"):
            Pipeline("materialize", "lake", several, changes_to=name).check()
    assert pipeline(world, "materialize").job() == Materialize(str(world.directory / "lake"))
