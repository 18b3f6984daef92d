"""Messages that are not JSON, as columns: Avro and Protobuf.

The columns are the message's place, followed by the fields of the type that `valueSchema`
describes. A user's own schema selects some of them. Messages that do not fit are treated according
to `mode`, like JSON that does not fit.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pyspark_headwater.avro import avro_records
from pyspark_headwater.errors import InvalidOption, MalformedMessage
from pyspark_headwater.options import Encoding, Mode
from pyspark_headwater.protobuf import protobuf_messages
from pyspark_headwater.shapes import CORRUPT, PLACES, Shape, check_places, place_columns

_IN_FRONT: Final = ("_stream", "_offset", "_index", "_timestamp")


class Decoder(Protocol):
    columns: StructType

    def values(self, message: bytes) -> dict[str, Any]:
        """The fields of a message; raises ValueError if it does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class Decoding:
    """How messages become columns. Sent to tasks, which create the decoder."""

    format: str
    schema: str
    message: str | None

    @classmethod
    def of(cls, encoding: Encoding) -> Decoding:
        """With the schema itself if the option names a file, which only the driver may have."""
        text = encoding.schema
        if encoding.format == "avro":
            inline = text.lstrip().startswith(("{", "[", '"'))
            return cls("avro", text if inline else _file(text).decode(), None)
        found = _file(text) if Path(text).suffix else base64.b64decode(text)
        return cls("protobuf", base64.b64encode(found).decode(), encoding.message)

    def decoder(self) -> Decoder:
        if self.format == "avro":
            return avro_records(self.schema)
        return protobuf_messages(self.schema, self.message)

    def columns(self, mode: Mode) -> StructType:
        """The columns when no schema is given."""
        names = (*_IN_FRONT, CORRUPT) if mode == "PERMISSIVE" else _IN_FRONT
        return StructType(
            [StructField(n, PLACES[n]) for n in names] + self.decoder().columns.fields
        )


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidOption(f"valueSchema: {path}: {error.strerror}") from None


def messages_decoded(schema: StructType, mode: Mode, decoding: Decoding) -> Shape:
    """Rows of decoded messages."""
    check_places(schema, mode)
    known = {field.name: field.dataType for field in decoding.decoder().columns.fields}
    for field in schema.fields:
        if field.name not in PLACES and known.get(field.name) != field.dataType:
            found = known.get(field.name)
            what = "no such field" if found is None else f"a {found.simpleString()}"
            raise InvalidOption(f"the column {field.name} is {what} in valueSchema")
    target = to_arrow_schema(schema, timezone="UTC")

    def shape(stream: str, rows: Any) -> Any:
        found, corrupt = _decode(decoding.decoder(), rows, mode, stream)
        places = place_columns(stream, rows, pa.array(corrupt, pa.string()))
        arrays = [
            places[field.name]()
            if field.name in places
            else pa.array([one.get(field.name) for one in found], field.type)
            for field in target
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=target)
        if mode != "DROPMALFORMED":
            return batch
        return batch.filter(pa.array([one is None for one in corrupt]))

    return shape


def _decode(
    decoder: Decoder, rows: Any, mode: Mode, stream: str
) -> tuple[list[dict[str, Any]], list[str | None]]:
    found: list[dict[str, Any]] = []
    corrupt: list[str | None] = []
    for number, message in enumerate(rows.column("value").cast(pa.binary()).to_pylist()):
        try:
            found.append(decoder.values(message))
            corrupt.append(None)
        except ValueError as error:
            if mode == "FAILFAST":
                place = f"{rows.column('offset')[number]}, index {rows.column('index')[number]}"
                raise MalformedMessage(
                    f"a message of {stream!r} at {place} does not fit valueSchema: {error}. "
                    "Mode PERMISSIVE keeps such messages apart, DROPMALFORMED leaves them out."
                ) from None
            found.append({})
            corrupt.append(message.hex())
    return found, corrupt
