"""Protobuf messages: the columns of a message type, and the values of a message.

The type comes from a descriptor set, which `protoc --descriptor_set_out --include_imports` writes.
An unset field is null if its presence is tracked, and its default otherwise. Enums are their names,
`google.protobuf.Timestamp` is a timestamp, and an unsigned 64-bit number is a decimal, because no
other column holds all of them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
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

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
except ImportError:
    descriptor_pb2 = None

_TIMESTAMP: Final = "google.protobuf.Timestamp"
# By the type numbers of descriptors: int32, int64, uint32, uint64 and so on.
_PLAIN: Final[Mapping[int, DataType]] = {
    1: IntegerType(),
    2: LongType(),
    3: LongType(),
    4: DecimalType(20, 0),
    5: DoubleType(),
    6: FloatType(),
    7: BooleanType(),
    8: StringType(),
}
_UNSIGNED_64: Final = 4
_ENUM: Final = 8
_STRING: Final = 9
_MESSAGE: Final = 10
_BYTES_TYPE: Final = 12


class ProtobufMessages:
    """Messages of one type."""

    def __init__(self, descriptors: str, name: str | None) -> None:
        if descriptor_pb2 is None:
            raise InvalidOption("valueFormat protobuf needs a package: pip install protobuf")
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(
                base64.b64decode(descriptors, validate=True)
            )
            pool = descriptor_pool.DescriptorPool()
            for file in files.file:
                pool.Add(file)
        except (binascii.Error, DecodeError, TypeError, ValueError) as error:
            raise InvalidOption(f"valueSchema is no set of descriptors: {error}") from None
        self._descriptor = _find(pool, files, name)
        self._type = message_factory.GetMessageClass(self._descriptor)
        self.columns = _columns(self._descriptor, ())

    def values(self, message: bytes) -> dict[str, Any]:
        """The fields of a message; raises ValueError if it is not such a message."""
        try:
            return _values(self._type.FromString(message))
        except (DecodeError, ValueError, OverflowError) as error:
            raise ValueError(f"no such message: {error}") from None


@lru_cache(16)
def protobuf_messages(descriptors: str, name: str | None) -> ProtobufMessages:
    return ProtobufMessages(descriptors, name)


def _find(pool: Any, files: Any, name: str | None) -> Any:
    names = [
        f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type
    ]
    if name is None and len(names) != 1:
        raise InvalidOption(f"valueMessage must name one of {', '.join(names) or 'no messages'}")
    try:
        return pool.FindMessageTypeByName(name or names[0])
    except KeyError:
        known = ", ".join(names)
        raise InvalidOption(f"valueSchema has no message {name!r}, but {known}") from None


def _columns(descriptor: Any, inside: tuple[str, ...]) -> StructType:
    if descriptor.full_name in inside:
        raise InvalidOption(f"the message {descriptor.full_name} is inside itself")
    inside = (*inside, descriptor.full_name)
    return StructType([StructField(one.name, _column(one, inside)) for one in descriptor.fields])


def _column(field: Any, inside: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single(entry["key"], inside), _single(entry["value"], inside))
    single = _single(field, inside)
    return ArrayType(single) if field.is_repeated else single


def _single(field: Any, inside: tuple[str, ...]) -> DataType:
    if field.cpp_type == _MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return TimestampType()
        return _columns(field.message_type, inside)
    if field.cpp_type == _STRING:
        return BinaryType() if field.type == _BYTES_TYPE else StringType()
    return _PLAIN[field.cpp_type]


def _is_map(field: Any) -> bool:
    return field.cpp_type == _MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _values(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if not field.is_repeated and field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {key: _converted(found[key], of) for key in found}
    if field.is_repeated:
        return [_converted(one, field) for one in found]
    return _converted(found, field)


def _converted(value: Any, field: Any) -> Any:
    if field.cpp_type == _MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=UTC)
        return _values(value)
    if field.cpp_type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.cpp_type == _UNSIGNED_64 else value
