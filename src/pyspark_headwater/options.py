"""The options of the format, each described once: where it applies, its default, its meaning.

Spark passes options as text, in any case. Unknown and contradictory options are refused before
anything is read, with the name that was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

import msgspec

from headwater.client.protocol.addresses import stream_root
from pyspark_headwater.errors import InvalidOption

Use = Literal["batch read", "stream read", "batch write", "stream write"]
Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
Ordering = Literal["partition", "global"]
SealedReads = Literal["auto", "server", "direct"]

READ: Final[tuple[Use, ...]] = ("batch read", "stream read")
WRITE: Final[tuple[Use, ...]] = ("batch write", "stream write")
EVERY: Final[tuple[Use, ...]] = READ + WRITE

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
ROWS_PER_REQUEST_DEFAULT: Final = 5_000
ROWS_PER_REQUEST_MAX: Final = 100_000
RETRY_TIMEOUT_DEFAULT_S: Final = 300
PARTITIONS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the table in the documentation."""

    name: str
    uses: tuple[Use, ...]
    default: str
    meaning: str


OPTIONS: Final = (
    Option("endpoint", EVERY, "http://127.0.0.1:4437", "The address of the server."),
    Option("token", EVERY, "", "A bearer token to send along."),
    Option("stream", EVERY, "", "The stream to read or to append to."),
    Option("streams", READ, "", "Several streams, separated by commas."),
    Option(
        "streamPattern",
        READ,
        "",
        "All streams whose path matches: `*` is one segment, `**` any number. "
        "Streams that are created later join from their beginning.",
    ),
    Option(
        "onlyJson", READ, "`false`", "With `streamPattern`: leave out streams that are not JSON."
    ),
    Option(
        "startingOffsets",
        READ,
        "`earliest` (batch), `latest` (stream)",
        "Where a new query begins: `earliest`, `latest`, or a JSON object from stream to offset.",
    ),
    Option(
        "startingTimestamp",
        READ,
        "",
        "Instead: begin with what was stored at this moment or later, in ms since 1970.",
    ),
    Option(
        "endingOffsets",
        ("batch read",),
        "`latest`",
        "Where to stop: `latest`, or a JSON object from stream to offset.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        ("stream read",),
        "no limit",
        "How many messages a micro-batch takes in, rounded to whole appends.",
    ),
    Option(
        "maxBytesPerTrigger",
        ("stream read",),
        "no limit",
        "How many bytes a micro-batch takes in, rounded to whole appends.",
    ),
    Option("minPartitions", READ, "one for 16 MiB", "Into how many tasks to cut what is read."),
    Option(
        "failOnDataLoss",
        READ,
        "`true`",
        "Whether a query fails when a stream was deleted or created again under its name.",
    ),
    Option(
        "sealedReads",
        READ,
        "`auto`",
        "How tasks read [history](history.md) that is in files: `auto` takes it from the files "
        "where a task can reach them, `server` never does, `direct` fails where it cannot.",
    ),
    Option("includeHeaders", READ, "`false`", "Add the columns about producers, and message ids."),
    Option(
        "mode",
        READ,
        "`FAILFAST`",
        "With a schema of your own, what happens to a message that does not fit: `FAILFAST` fails "
        "the query, `PERMISSIVE` puts its text into the column `_corrupt`, `DROPMALFORMED` leaves "
        "it out.",
    ),
    Option(
        "retryTimeout",
        EVERY,
        str(RETRY_TIMEOUT_DEFAULT_S),
        "Seconds to keep trying while the server cannot be reached or answers 503.",
    ),
    Option(
        "ordering",
        WRITE,
        "`partition`",
        "`partition`: tasks append side by side. `global`: the driver appends everything in order.",
    ),
    Option("createStream", WRITE, "`false`", "Create the stream if it does not exist."),
    Option("contentType", WRITE, "`application/json`", "The type of a stream created that way."),
    Option(
        "keyColumn",
        WRITE,
        "",
        "Write rows as changes of the State Protocol, with this column as the key.",
    ),
    Option("entityType", WRITE, "the stream's last segment", "The type of such changes."),
    Option(
        "operationColumn",
        WRITE,
        "",
        "The column that says `insert`, `update`, `upsert` or `delete`; without it: `upsert`.",
    ),
    Option(
        "messageIdColumn",
        WRITE,
        "",
        "The column with the id of a message, for streams that check ids. One request per row.",
    ),
    Option(
        "rowsPerRequest",
        WRITE,
        str(ROWS_PER_REQUEST_DEFAULT),
        "How many rows go into one append.",
    ),
    Option(
        "producerId",
        ("batch write",),
        "",
        "With `txnVersion`: a name for this job, so that running it again writes nothing twice.",
    ),
    Option(
        "txnVersion",
        ("batch write",),
        "",
        "A number that grows with every run that has something new to write.",
    ),
)

# What Spark itself hands to a sink or source along with the options that are meant for it.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname", "triggertype"})


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach the server."""

    root: str
    token: str | None = field(repr=False)
    retry_timeout_s: float

    @property
    def base(self) -> str:
        """The address of what is not below a stream."""
        return self.root.removesuffix("/stream")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was asked for."""

    server: Server
    streams: tuple[str, ...]
    pattern: str | None
    only_json: bool
    starting: str | Mapping[str, str]
    ending: str | Mapping[str, str]
    starting_timestamp_ms: int | None
    max_messages: int | None
    max_bytes: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    mode: Mode
    sealed_reads: SealedReads = "auto"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer was asked for."""

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
    """The options as they came, checked by name, read by type."""

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

    def truth(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise InvalidOption(f"{name} must be true or false: {text!r}")
        return text.lower() == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of some words in any case; the first of them by default."""
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
        min_partitions=given.number("minPartitions", 1, PARTITIONS_MAX),
        fail_on_data_loss=given.truth("failOnDataLoss", True),
        include_headers=given.truth("includeHeaders", False),
        sealed_reads=cast(SealedReads, given.choice("sealedReads", get_args(SealedReads))),
        mode=cast(Mode, given.choice("mode", get_args(Mode))),
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
