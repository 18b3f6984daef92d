"""The options of a reader or a writer.

Spark passes options as text, in any case. Unknown and contradictory options are refused before
anything is read, with the name that was probably meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

import msgspec

from headwater.client.protocol.addresses import stream_root
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.known_options import (
    OPTIONS,
    RETRY_TIMEOUT_DEFAULT_S,
    ROWS_PER_REQUEST_DEFAULT,
    Option,
    Use,
)

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
Ordering = Literal["partition", "global"]
SealedReads = Literal["auto", "server", "direct"]
ValueFormat = Literal["json", "avro", "protobuf"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
ROWS_PER_REQUEST_MAX: Final = 100_000
PARTITIONS_MAX: Final = 10_000
TRIGGER_DELAY_DEFAULT: Final = "15m"
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d{1,9}) ?(ms|s|m|h)")

# What Spark itself passes to a sink or source along with its options.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname", "triggertype"})


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach the server."""

    root: str
    token: str | None = field(repr=False)
    retry_timeout_s: float

    @property
    def base(self) -> str:
        """The base address of everything that is not below a stream."""
        return self.root.removesuffix("/stream")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of messages that are not JSON."""

    format: ValueFormat
    schema: str
    message: str | None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader."""

    server: Server
    streams: tuple[str, ...]
    pattern: str | None
    only_json: bool
    starting: str | Mapping[str, str]
    ending: str | Mapping[str, str]
    starting_timestamp_ms: int | None
    max_messages: int | None
    max_bytes: int | None
    min_messages: int | None
    max_delay_s: float
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    mode: Mode
    sealed_reads: SealedReads = "auto"
    encoding: Encoding | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a writer."""

    server: Server
    stream: str | None
    ordering: Ordering
    create: bool
    content_type: str
    key_column: str | None
    entity_type: str | None
    operation_column: str | None
    id_column: str | None
    rows_per_request: int
    producer_id: str | None
    txn_version: int | None


class _Given:
    """The options as given, checked by name, read by type."""

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {option.name.lower(): option for option in OPTIONS if use in option.uses}
        for name in self._values:
            if name not in known and name not in _SPARKS_OWN:
                raise InvalidOption(_unknown(name, use, known.values()))

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower(), "").strip()
        return value or None

    def number(self, name: str, least: int, most: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise InvalidOption(f"{name} must be a whole number from {least} to {most}: {text!r}")
        return int(text)

    def duration_s(self, name: str, default: str) -> float:
        text = self.text(name) or default
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise InvalidOption(f"{name} must be a number with ms, s, m or h after it: {text!r}")
        return int(found[1]) * _UNITS_S[found[2]]

    def truth(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidOption(f"{name} must be true or false: {text!r}")
        return text.lower() == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of several words in any case; the first by default."""
        text = self.text(name) or choices[0]
        for choice in choices:
            if choice.lower() == text.lower():
                return choice
        raise InvalidOption(f"{name} must be {' or '.join(choices)}: {text!r}")

    def server(self) -> Server:
        endpoint = self.text("endpoint") or OPTIONS[0].default
        try:
            root = stream_root(endpoint)
        except ValueError as error:
            raise InvalidOption(f"endpoint: {error}") from None
        patience_s = self.number("retryTimeout", 0, 10**9)
        patience_s = RETRY_TIMEOUT_DEFAULT_S if patience_s is None else patience_s
        return Server(root, self.text("token"), float(patience_s))


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """The options of a reader, or an error that says what is wrong with them."""
    given = _Given(options, use)
    streams = _selected(given)
    starting = _offsets(given, "startingOffsets", EARLIEST if use == "batch read" else LATEST)
    at_ms = given.number("startingTimestamp", 0, 10**15 - 1)
    if at_ms is not None and given.text("startingOffsets") is not None:
        raise InvalidOption("give startingOffsets or startingTimestamp, not both")
    ending = _offsets(given, "endingOffsets", LATEST)
    if ending == EARLIEST:
        raise InvalidOption("endingOffsets cannot be earliest: nothing would be read")
    for name, offsets in (("startingOffsets", starting), ("endingOffsets", ending)):
        if streams and not isinstance(offsets, str):
            for stream in offsets.keys() - set(streams):
                raise InvalidOption(f"{name} names {stream!r}, which is not among the streams")
    return ReadOptions(
        server=given.server(),
        streams=streams,
        pattern=given.text("streamPattern"),
        only_json=given.truth("onlyJson", False),
        starting=starting,
        ending=ending,
        starting_timestamp_ms=at_ms,
        max_messages=given.number("maxOffsetsPerTrigger", 1, 2**53),
        max_bytes=given.number("maxBytesPerTrigger", 1, 2**49),
        min_messages=_least(given),
        max_delay_s=given.duration_s("maxTriggerDelay", TRIGGER_DELAY_DEFAULT),
        min_partitions=given.number("minPartitions", 1, PARTITIONS_MAX),
        fail_on_data_loss=given.truth("failOnDataLoss", True),
        include_headers=given.truth("includeHeaders", False),
        sealed_reads=cast(SealedReads, given.choice("sealedReads", get_args(SealedReads))),
        mode=cast(Mode, given.choice("mode", get_args(Mode))),
        encoding=_encoding(given),
    )


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """The options of a writer, or an error that says what is wrong with them."""
    given = _Given(options, use)
    producer_id, version = given.text("producerId"), given.number("txnVersion", 0, 2**53 - 1)
    if (producer_id is None) != (version is None):
        raise InvalidOption(
            "producerId and txnVersion belong together: the first names the job, the second the run"
        )
    for name in ("entityType", "operationColumn"):
        if given.text(name) is not None and given.text("keyColumn") is None:
            raise InvalidOption(f"{name} needs keyColumn: it is about changes of entities")
    rows = given.number("rowsPerRequest", 1, ROWS_PER_REQUEST_MAX)
    return WriteOptions(
        server=given.server(),
        stream=given.text("stream"),
        ordering=cast(Ordering, given.choice("ordering", get_args(Ordering))),
        create=given.truth("createStream", False),
        content_type=given.text("contentType") or "application/json",
        key_column=given.text("keyColumn"),
        entity_type=given.text("entityType"),
        operation_column=given.text("operationColumn"),
        id_column=given.text("messageIdColumn"),
        rows_per_request=rows or ROWS_PER_REQUEST_DEFAULT,
        producer_id=producer_id,
        txn_version=version,
    )


def _encoding(given: _Given) -> Encoding | None:
    form = cast(ValueFormat, given.choice("valueFormat", get_args(ValueFormat)))
    schema, message = given.text("valueSchema"), given.text("valueMessage")
    if message is not None and form != "protobuf":
        raise InvalidOption("valueMessage is for valueFormat protobuf")
    if (schema is None) != (form == "json"):
        raise InvalidOption("valueSchema goes with valueFormat avro or protobuf, and they with it")
    return None if schema is None else Encoding(form, schema, message)


def _least(given: _Given) -> int | None:
    """The smallest number of messages worth a micro-batch."""
    least = given.number("minOffsetsPerTrigger", 1, 2**53)
    most = given.number("maxOffsetsPerTrigger", 1, 2**53)
    if least is None and given.text("maxTriggerDelay") is not None:
        raise InvalidOption("maxTriggerDelay needs minOffsetsPerTrigger: it limits that wait")
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger ({least}) cannot be more than maxOffsetsPerTrigger ({most})"
        )
    return least


def _selected(given: _Given) -> tuple[str, ...]:
    names = ("stream", "streams", "streamPattern")
    present = [name for name in names if given.text(name) is not None]
    if len(present) != 1:
        found = " and ".join(present) or "none of them"
        raise InvalidOption(f"give exactly one of stream, streams and streamPattern, not {found}")
    listed = [stream.strip().strip("/") for stream in (given.text("streams") or "").split(",")]
    single = (given.text("stream") or "").strip("/")
    return tuple(sorted({stream for stream in (single, *listed) if stream}))


def _offsets(given: _Given, name: str, default: str) -> str | Mapping[str, str]:
    text = given.text(name) or default
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, str])
    except msgspec.DecodeError:
        raise InvalidOption(
            f"{name} must be earliest, latest or a JSON object from stream to offset: {text!r}"
        ) from None


def _unknown(name: str, use: Use, known: Iterable[Option]) -> str:
    names = {option.name.lower(): option.name for option in known}
    elsewhere = next((option for option in OPTIONS if option.name.lower() == name), None)
    if elsewhere is not None:
        return f"the option {elsewhere.name} is for a {' or '.join(elsewhere.uses)}, not a {use}"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"unknown option {name!r} for a {use}; did you mean {names[near[0]]}?"
