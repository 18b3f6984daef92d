"""Avro messages: the columns of a schema, and the values of a message.

A message is one record in Avro's binary encoding, without a file header or a fingerprint. A union
with null is a nullable column of its other type; unions of several types have no column that could
hold them and are refused.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_headwater.errors import InvalidOption

_fastavro: Any
try:
    import fastavro as _fastavro
except ImportError:
    _fastavro = None

_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "uuid": StringType(),
}


class AvroRecords:
    """Records of one schema."""

    def __init__(self, text: str) -> None:
        if _fastavro is None:
            raise InvalidOption("valueFormat avro needs a package: pip install fastavro")
        try:
            self._schema: Any = _fastavro.parse_schema(msgspec.json.decode(text))
        except _fastavro.schema.UnknownType as error:
            raise InvalidOption(f"valueSchema names an unknown type: {error}") from None
        except (_fastavro.schema.SchemaParseException, ValueError, KeyError) as error:
            raise InvalidOption(f"valueSchema is no Avro schema: {error}") from None
        found = _column(self._schema, {}, ())
        if not isinstance(found, StructType):
            raise InvalidOption("valueSchema must be the schema of a record")
        self.columns = found

    def values(self, message: bytes) -> dict[str, Any]:
        """The fields of a message; raises ValueError if it is not such a record."""
        body = io.BytesIO(message)
        try:
            record: Any = _fastavro.schemaless_reader(body, self._schema, None)
        except Exception as error:
            # What a decoder raises for invalid bytes is not part of its contract.
            raise ValueError(f"no such record: {error!r}") from None
        if body.read(1):
            raise ValueError("the message goes on after the record")
        return {field["name"]: _plain(record[field["name"]]) for field in self._schema["fields"]}


@lru_cache(16)
def avro_records(text: str) -> AvroRecords:
    return AvroRecords(text)


def _column(schema: Any, known: dict[str, Any], inside: tuple[str, ...]) -> DataType:
    if isinstance(schema, str) and schema in known:
        return _column(known[schema], known, inside)
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise InvalidOption(f"valueSchema has a union of several types: {others}")
        return _column(others[0], known, inside)
    kind = schema if isinstance(schema, str) else schema["type"]
    details = {} if isinstance(schema, str) else schema
    if "name" in details:
        known[details["name"]] = schema
    if details.get("logicalType") == "decimal":
        return DecimalType(details["precision"], details.get("scale", 0))
    if details.get("logicalType") in _LOGICAL:
        return _LOGICAL[details["logicalType"]]
    match kind:
        case "record":
            if details["name"] in inside:
                raise InvalidOption(f"valueSchema has a record inside itself: {details['name']}")
            inside = (*inside, details["name"])
            fields = [(one["name"], one["type"]) for one in details["fields"]]
            return StructType([StructField(n, _column(t, known, inside)) for n, t in fields])
        case "array":
            return ArrayType(_column(details["items"], known, inside))
        case "map":
            return MapType(StringType(), _column(details["values"], known, inside))
    if kind not in _PLAIN:
        raise InvalidOption(f"valueSchema has a type that no column has: {kind!r}")
    return _PLAIN[kind]


def _plain(value: Any) -> Any:
    """Ids as text; Arrow takes everything else as it is."""
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
    return str(value) if type(value).__name__ == "UUID" else value
