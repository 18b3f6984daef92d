"""Rows and the values they stand for: nothing is lost on the way there and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.expiry import FOREVER, Lifetime, touch_interval_ms
from headwater.core.limits import PRODUCER_NUMBER_MAX, TTL_SECONDS_MAX
from headwater.core.lineage import ForkRequest, Inherited, Lineage
from headwater.core.producers import ProducerStamp, ProducerState
from headwater.core.stream import Appended, Closed, Created, StreamConfig
from headwater.core.unique_ids import UniqueIds
from headwater.store import rows
from headwater.store.checksums import append_checksum
from headwater.store.rows import CONFIG_COLUMNS, OP_COLUMNS
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.properties import NORMAL, THOROUGH

positions = st.integers(0, 10**16 - 1)
ids = st.integers(1, 10**16 - 1)
times = st.integers(0, 2**45)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
stamps = st.builds(
    ProducerStamp,
    texts.filter(bool),
    st.integers(0, PRODUCER_NUMBER_MAX),
    st.integers(0, PRODUCER_NUMBER_MAX),
)
lifetimes = st.one_of(
    st.just(FOREVER),
    st.builds(Lifetime, ttl_s=st.integers(0, TTL_SECONDS_MAX)),
    st.builds(Lifetime, expires_at_ms=st.integers(-(2**50), 2**50), expires_at_text=texts),
)


id_rules = st.builds(UniqueIds, st.sampled_from(["fail", "succeed"]), st.none() | texts)


@st.composite
def configs(draw: st.DrawFn) -> StreamConfig:
    own = draw(ids)
    runs = sorted(draw(st.sets(ids, max_size=4)))
    ends = sorted(draw(st.sets(positions, min_size=len(runs), max_size=len(runs))))
    inherited = tuple(map(Inherited, runs, ends))
    fork = draw(
        st.none() | st.builds(ForkRequest, texts, st.none() | texts, st.integers(0, 10**16 - 1))
    )
    return StreamConfig(
        id=own,
        path=draw(texts),
        content_type=draw(texts),
        created_at_ms=draw(times),
        lifetime=draw(lifetimes),
        lifetime_inherited=draw(st.booleans()),
        lineage=Lineage(own, inherited),
        source_id=draw(st.none() | ids),
        fork=fork,
        base_messages=draw(positions),
        version=draw(st.integers(0, 10**15)),
        description=draw(st.none() | texts),
        unique_ids=draw(st.none() | id_rules),
    )


appends = st.builds(
    Appended,
    stream_id=ids,
    start=positions,
    body=st.binary(min_size=1, max_size=50),
    first_message=positions,
    messages=st.integers(1, 10**6),
    at_ms=times,
    producer=st.none() | stamps,
)


@THOROUGH
@given(configs())
def test_a_configuration_survives_its_row(config: StreamConfig) -> None:
    row = rows.stream_row(config)
    assert len(row) == len(CONFIG_COLUMNS.split(","))
    assert rows.read_config(row) == config


@THOROUGH
@given(appends)
def test_an_append_survives_its_row(append: Appended) -> None:
    row = rows.op_row(append)
    assert len(row) == len(OP_COLUMNS.split(","))
    assert rows.read_op(row) == append
    assert rows.op_is_intact(row)
    assert all(not isinstance(value, int) or -(2**63) <= value < 2**63 for value in row)


@THOROUGH
@given(
    configs(), times, st.none() | times, st.none() | stamps, st.none() | texts, st.integers(0, 1)
)
def test_a_state_is_made_of_its_columns_and_its_last_append(
    config: StreamConfig,
    touched: int,
    closed_at: int | None,
    closed_by: ProducerStamp | None,
    seq: str | None,
    status: int,
) -> None:
    columns = (touched, closed_at, *(closed_by or (None, None, None)), seq, status, 77)
    empty = rows.read_state(config, columns, None, 0)
    assert (empty.tail, empty.messages) == (config.lineage.base, config.base_messages)
    state = rows.read_state(config, columns, (42, 9), 3)
    assert (state.tail, state.messages, state.forks) == (42, 9, 3)
    assert (state.closed, state.closed_by) == (closed_at is not None, closed_by)
    assert (state.last_stream_seq, state.soft_deleted) == (seq, status == 1)
    assert (state.stored_touch_ms, state.trim_due_ms) == (touched, 77)
    assert state.touched_at_ms == touched + touch_interval_ms(config.lifetime)


# ── Through the database ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteEngine]:
    directory: Path = tmp_path_factory.mktemp("rows")
    with closing(SqliteEngine(directory)) as engine:
        yield engine


numbers = count(1)


@NORMAL
@given(configs(), st.binary(min_size=1, max_size=9_000), st.none() | stamps, st.none() | texts)
def test_everything_survives_the_database(
    engine: SqliteEngine,
    config: StreamConfig,
    body: bytes,
    stamp: ProducerStamp | None,
    seq: str | None,
) -> None:
    """Any text, any number, any bytes: SQLite keeps them as they are."""
    own = next(numbers)
    config = StreamConfig(
        **{
            **{name: getattr(config, name) for name in config.__dataclass_fields__},
            "id": own,
            "path": f"{own}/{config.path}",
            "lineage": Lineage(own, config.lineage.inherited),
            "source_id": None,
        }
    )
    start = config.lineage.base
    append = Appended(own, start, body, config.base_messages, 2, 77, stamp, seq)
    engine.commit([Created(config), append, Closed(own, 78, stamp)])
    loaded = engine.streams.load(config.path)
    assert loaded is not None
    state = loaded.state
    assert state.config == config
    assert (state.tail, state.messages) == (start + len(body), config.base_messages + 2)
    assert (state.closed, state.closed_by, state.last_stream_seq) == (True, stamp, seq)
    known = {stamp.id: ProducerState(stamp.epoch, stamp.seq)} if stamp else {}
    assert state.producers == known
    assert engine.appends.read(state.config.lineage.spans(start, state.tail)[0], 10**9) == [body]


# ── Checksums ────────────────────────────────────────────────────────────────────────────────


@THOROUGH
@given(ids, positions, st.binary(min_size=1, max_size=40), st.data())
def test_a_body_that_is_damaged_or_in_the_wrong_place_does_not_match(
    stream_id: int, start: int, body: bytes, data: st.DataObject
) -> None:
    good = append_checksum(stream_id, start, body)
    assert -(2**63) <= good < 2**63
    at = data.draw(st.integers(0, len(body) * 8 - 1))
    flipped = bytearray(body)
    flipped[at // 8] ^= 1 << at % 8
    assert append_checksum(stream_id, start, bytes(flipped)) != good
    assert append_checksum(stream_id, start, body[:-1]) != good
    assert append_checksum(stream_id, start, body + b"\0") != good
    assert append_checksum(stream_id + data.draw(st.integers(1, 9)), start, body) != good
    assert append_checksum(stream_id, start + data.draw(st.integers(1, 9)), body) != good
