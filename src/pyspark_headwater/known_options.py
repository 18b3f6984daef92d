"""The options of the format, each described once: where it applies, its default, its meaning.

A test compares the table in the documentation with this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Use = Literal["batch read", "stream read", "batch write", "stream write"]

READ: Final[tuple[Use, ...]] = ("batch read", "stream read")
WRITE: Final[tuple[Use, ...]] = ("batch write", "stream write")
EVERY: Final[tuple[Use, ...]] = READ + WRITE

ROWS_PER_REQUEST_DEFAULT: Final = 5_000
RETRY_TIMEOUT_DEFAULT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table in the documentation."""

    name: str
    uses: tuple[Use, ...]
    default: str
    meaning: str


OPTIONS: Final = (
    Option("endpoint", EVERY, "http://127.0.0.1:4437", "The address of the server."),
    Option("token", EVERY, "", "The bearer token to send."),
    Option("stream", EVERY, "", "The stream to read or to append to."),
    Option("streams", READ, "", "Several streams, separated by commas."),
    Option(
        "streamPattern",
        READ,
        "",
        "All streams whose path matches: `*` is one segment, `**` any number. Streams created "
        "later are read from their beginning.",
    ),
    Option(
        "onlyJson", READ, "`false`", "With `streamPattern`: leave out streams that are not JSON."
    ),
    Option(
        "startingOffsets",
        READ,
        "`earliest` (batch), `latest` (stream)",
        "Where a new query starts: `earliest`, `latest`, or a JSON object from stream to offset.",
    ),
    Option(
        "startingTimestamp",
        READ,
        "",
        "Instead: start with what was stored at this time or later, in ms since 1970.",
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
        "How many messages a micro-batch reads, rounded to whole appends.",
    ),
    Option(
        "maxBytesPerTrigger",
        ("stream read",),
        "no limit",
        "How many bytes a micro-batch reads, rounded to whole appends.",
    ),
    Option(
        "minOffsetsPerTrigger",
        ("stream read",),
        "none",
        "How many messages have to be waiting before a micro-batch reads them.",
    ),
    Option(
        "maxTriggerDelay",
        ("stream read",),
        "`15m`",
        "With `minOffsetsPerTrigger`: how long after a micro-batch the next one reads what is "
        "there anyway, such as `30s`, `15m` or `1h`.",
    ),
    Option(
        "minPartitions", READ, "one for 16 MiB", "The least number of tasks to split a read into."
    ),
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
        "How tasks read [history](history.md) that is in files: `auto` reads the files if the "
        "task can reach them, `server` never does, `direct` fails if it cannot.",
    ),
    Option(
        "includeHeaders",
        READ,
        "`false`",
        "Add the columns about producers, message ids, keys and headers.",
    ),
    Option(
        "mode",
        READ,
        "`FAILFAST`",
        "With a schema of your own, what happens to a message that does not fit: `FAILFAST` fails "
        "the query, `PERMISSIVE` puts its text into the column `_corrupt`, `DROPMALFORMED` leaves "
        "it out.",
    ),
    Option(
        "valueFormat",
        READ,
        "`json`",
        "What messages are: `avro` and `protobuf` become columns, one for each field.",
    ),
    Option(
        "valueSchema",
        READ,
        "",
        "With `avro`: the schema of a record, or a file that holds it. With `protobuf`: a file "
        "that `protoc --descriptor_set_out --include_imports` wrote, or its bytes in base64.",
    ),
    Option(
        "valueMessage",
        READ,
        "the only one",
        "With `protobuf`: the full name of the message.",
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
        "`partition`: tasks append in parallel. `global`: the driver appends everything in order.",
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
        "The column that holds `insert`, `update`, `upsert` or `delete`; without it, all are "
        "`upsert`.",
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
