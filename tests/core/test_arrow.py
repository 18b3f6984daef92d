"""Frames as rows of Arrow, held against taking one append apart after the other."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import json_mode
from headwater.core.arrow import rows_of, schema_of
from headwater.core.errors import DataCorrupt
from headwater.core.frames import Frame
from headwater.core.lineage import Inherited, Lineage, measure_sub_offset
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from tests.support.properties import NORMAL, json_texts

RUN, OWN = 3, 11

stamps = st.none() | st.builds(
    ProducerStamp, st.text(min_size=1, max_size=4), st.integers(0, 2**53 - 1), st.integers(0, 9)
)


class Made(NamedTuple):
    """What a run wrote, and how much of the last append a fork of it inherits."""

    appends: list[Appended]
    inherited: int


@st.composite
def runs(draw: st.DrawFn, *, is_json: bool = True) -> Made:
    start, number = draw(st.sampled_from([0, 7, 10**15])), draw(st.integers(0, 9))
    several = draw(st.sampled_from([1, 4]))
    appends: list[Appended] = []
    for _ in range(draw(st.integers(1, 6))):
        if is_json:
            sent = draw(st.lists(json_texts, min_size=1, max_size=several))
            body, count = json_mode.encode(b"[%b]" % b" , ".join(sent))
        else:
            body, count = draw(st.binary(min_size=1, max_size=9)), 1
        at_ms = draw(st.integers(0, 2**45))
        appends.append(Appended(RUN, start, body, number, count, at_ms, draw(stamps)))
        start, number = start + len(body), number + count
    last = appends[-1]
    most = last.messages if is_json else len(last.body)
    return Made(appends, draw(st.integers(1, most)))


def expected(appends: list[Appended], lineage: Lineage, end: int, *, is_json: bool) -> list[Any]:
    """The rows as their meaning is: append by append, message by message."""
    found = []
    for append in appends:
        body = append.body[: end - append.start]
        taken_apart = json_mode.decode(body) if is_json else [body]
        id_, epoch, seq = append.producer or (None, None, None)
        for index, message in enumerate(taken_apart):
            found.append(
                {
                    "offset": str(lineage.offset_at(append.start)),
                    "index": index,
                    "timestamp": append.at_ms,
                    "value": message.decode() if is_json else message,
                    "producer_id": id_,
                    "producer_epoch": epoch,
                    "producer_seq": seq,
                    "message_id": append.message_id,
                }
            )
    return found


def rows(frame: Frame, lineage: Lineage, *, is_json: bool) -> list[Any]:
    first = lineage.offset_at(frame.start)
    batch = rows_of(frame, first, json=is_json, headers=True)
    batch.validate(full=True)
    assert batch.schema == schema_of(json=is_json, headers=True)
    plain = rows_of(frame, first, json=is_json, headers=False)
    assert plain == batch.select(plain.schema.names)
    found = batch.drop_columns(["timestamp"]).to_pylist()
    times = batch.column("timestamp").cast("int64").to_pylist()
    return [{**row, "timestamp": time // 1000} for row, time in zip(found, times, strict=True)]


@pytest.mark.parametrize("is_json", [True, False])
@NORMAL
@given(st.data())
def test_a_block_is_its_appends(is_json: bool, data: st.DataObject) -> None:
    appends, _ = data.draw(runs(is_json=is_json))
    lineage, end = Lineage(RUN), appends[-1].end
    frame = Frame.of(appends, end)
    assert (frame.start, frame.end, frame.appends) == (appends[0].start, end, len(appends))
    assert rows(frame, lineage, is_json=is_json) == expected(appends, lineage, end, is_json=is_json)


@pytest.mark.parametrize("is_json", [True, False])
@NORMAL
@given(st.data())
def test_a_fork_has_a_part_of_it_and_goes_on(is_json: bool, data: st.DataObject) -> None:
    (appends, count), (own, _) = data.draw(runs(is_json=is_json)), data.draw(runs(is_json=is_json))
    last = appends[-1]
    end = last.start + measure_sub_offset(last.body, count, json=is_json)[0]
    lineage = Lineage(OWN, (Inherited(RUN, end),))
    moved = [
        Appended(
            OWN,
            end + one.start - own[0].start,
            one.body,
            one.first_message,
            one.messages,
            one.at_ms,
            one.producer,
        )
        for one in own
    ]
    stop = moved[-1].end
    found = [
        row
        for frame in (Frame.of(appends, end), Frame.of(moved, stop))
        for row in rows(frame, lineage, is_json=is_json)
    ]
    assert found == [
        *expected(appends, lineage, end, is_json=is_json),
        *expected(moved, lineage, stop, is_json=is_json),
    ]
    assert sorted(row["offset"] for row in found) == [row["offset"] for row in found]


def test_messages_nested_as_deeply_as_they_may_be() -> None:
    deep = b"[" * 400 + b"1" + b"]" * 400
    body, count = json_mode.encode(b"[" + deep + b',{"a":",["},' + deep + b"]")
    appends = [Appended(RUN, 0, body, 0, count, 1)]

    def far_down(depth: int) -> list[Any]:
        return far_down(depth - 1) if depth else rows(frame, Lineage(RUN), is_json=True)

    frame = Frame.of(appends, len(body))
    wanted = [deep.decode(), '{"a":",["}', deep.decode()]
    for depth in (0, 600, 800):
        assert [row["value"] for row in far_down(depth)] == wanted


def test_many_appends_are_taken_apart_in_pieces() -> None:
    sent = [[f"{n}:{'x' * 40_000}", n] for n in range(40)]
    appends, start = [], 0
    for number, pair in enumerate(sent):
        body, count = json_mode.encode(json.dumps(pair).encode())
        appends.append(Appended(RUN, start, body, 2 * number, count, number))
        start += len(body)
    found = rows(Frame.of(appends, start), Lineage(RUN), is_json=True)
    assert [json.loads(row["value"]) for row in found] == [one for pair in sent for one in pair]


def test_fewer_messages_than_an_index_says_are_damage() -> None:
    appends = [Appended(RUN, 0, b"1,2,", 0, 5, 1), Appended(RUN, 4, b"3,", 5, 1, 1)]
    with pytest.raises(DataCorrupt):
        rows(Frame.of(appends, 6), Lineage(RUN), is_json=True)
