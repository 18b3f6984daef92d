"""Options: what is understood, and what is said about the rest."""

from __future__ import annotations

import pytest

from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.known_options import OPTIONS, Use
from pyspark_headwater.options import read_options, write_options


def refusal(options: dict[str, str], use: Use = "stream read") -> str:
    parse = read_options if use.endswith("read") else write_options
    with pytest.raises(InvalidOption) as caught:
        parse(options, use)
    return str(caught.value)


def test_case_does_not_matter() -> None:
    options = read_options({"STREAM": "a", "maxoffsetspertrigger": "7"}, "stream read")
    assert (options.streams, options.max_messages) == (("a",), 7)


def test_defaults() -> None:
    batch = read_options({"stream": "a"}, "batch read")
    stream = read_options({"streams": "b, a,b"}, "stream read")
    assert (batch.starting, batch.ending, stream.starting) == ("earliest", "latest", "latest")
    assert stream.streams == ("a", "b")
    assert (stream.fail_on_data_loss, stream.include_headers, stream.mode) == (
        True,
        False,
        "FAILFAST",
    )
    assert batch.server.root == "http://127.0.0.1:4437/v1/stream"
    assert batch.server.base == "http://127.0.0.1:4437/v1"


@pytest.mark.parametrize(
    "wrong, meant",
    [
        ("strem", "stream"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startOffsets", "startingOffsets"),
        ("endpiont", "endpoint"),
        ("failOnDataLos", "failOnDataLoss"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_one(wrong: str, meant: str) -> None:
    said = refusal({"stream": "a", wrong: "1"})
    assert repr(wrong.lower()) in said
    assert said.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    "text, seconds", [("30s", 30.0), ("15m", 900.0), ("1 h", 3600.0), ("250ms", 0.25)]
)
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    given = {"stream": "a", "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    options = read_options(given, "stream read")
    assert (options.min_messages, options.max_delay_s) == (5, seconds)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "15"}, "with ms, s, m or h after it"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "-1s"}, "with ms, s, m or h after it"),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "0"}, "from 1 to"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "cannot be more than"),
    ],
)
def test_waiting_for_more_that_makes_no_sense(given: dict[str, str], said: str) -> None:
    assert said in refusal({"stream": "a", **given})


def test_an_option_for_something_else() -> None:
    assert "is for a batch read, not a stream read" in refusal(
        {"stream": "a", "endingOffsets": "latest"}
    )
    assert "txnVersion is for a batch write" in refusal(
        {"stream": "a", "txnVersion": "1"}, "stream write"
    )


@pytest.mark.parametrize("chosen", [{}, {"stream": "a", "streams": "b"}, {"stream": " "}])
def test_exactly_one_way_to_name_streams(chosen: dict[str, str]) -> None:
    assert "exactly one of stream, streams and streamPattern" in refusal(chosen)


@pytest.mark.parametrize(
    "name, value",
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxBytesPerTrigger", "1.5"),
        ("minPartitions", "many"),
        ("failOnDataLoss", "yes"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"a": 5}'),
        ("startingOffsets", '{"b": "earliest"}'),
        ("mode", "LENIENT"),
        ("endpoint", "localhost:4437"),
        ("retryTimeout", "soon"),
    ],
)
def test_values_that_make_no_sense(name: str, value: str) -> None:
    assert name in refusal({"stream": "a", name: value})


def test_contradictions() -> None:
    assert "not both" in refusal(
        {"stream": "a", "startingOffsets": "latest", "startingTimestamp": "1"}
    )
    assert "nothing would be read" in refusal(
        {"stream": "a", "endingOffsets": "earliest"}, "batch read"
    )
    assert "belong together" in refusal({"stream": "a", "producerId": "x"}, "batch write")
    assert "keyColumn" in refusal({"stream": "a", "entityType": "x"}, "stream write")


def test_what_spark_adds_is_no_option_of_ours() -> None:
    assert write_options({"stream": "a", "checkpointLocation": "/x"}, "stream write").stream == "a"


def test_every_option_is_described() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.meaning.endswith(".") for option in OPTIONS)
