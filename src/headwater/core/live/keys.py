"""Keys: 64-bit hashes that name what a query depends on.

Every key is XXH3-64 (seed 0) of a kind, a zero byte and its parts, separated by zero bytes:

- the table:      `tbl`, entity
- a template id:  `tpl`, entity, field…     a query shape: equality on up to three fields of a table
- its key:        `tpl`, id                 any row of the table, as seen by that shape
- watch:          `key`, id, value…         any change to the rows with these values
- membership:     `mem`, id, value…         which rows have these values
- projected:      `fld`, id, field, value…  that field of the rows with these values

The id of a template enters other keys as 8 bytes, most significant first. Fields are sorted by
UTF-16 code unit, values follow in the order of their fields. On the wire a key is 16 lowercase hex
digits. A key id is its low 32 bits; the id of a text that is not a key is its XXH32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from xxhash import xxh3_64_intdigest, xxh32_intdigest

KEY_ID_MASK: Final = 0xFFFF_FFFF
_KEY_DIGITS: Final = 16


def sorted_fields(fields: Iterable[str]) -> list[str]:
    return sorted(fields, key=lambda field: field.encode("utf-16-be", "surrogatepass"))


def table_key(entity: str) -> int:
    return xxh3_64_intdigest(b"tbl\0" + entity.encode())


def template_id(entity: str, fields: Sequence[str]) -> int:
    """The id of a template; its fields in any order."""
    return xxh3_64_intdigest("\0".join(["tpl", entity, *sorted_fields(fields)]).encode())


def template_key(template: int) -> int:
    return xxh3_64_intdigest(b"tpl\0" + template.to_bytes(8, "big"))


def arguments(values: Iterable[bytes]) -> bytes:
    """Encoded values, in field order, as they appear at the end of a key's bytes."""
    return b"".join([b"\0" + value for value in values])


def watch_key(template: int, values: Iterable[bytes]) -> int:
    return xxh3_64_intdigest(watch_prefix(template) + arguments(values))


def membership_key(template: int, values: Iterable[bytes]) -> int:
    return xxh3_64_intdigest(membership_prefix(template) + arguments(values))


def projected_key(template: int, field: str, values: Iterable[bytes]) -> int:
    return xxh3_64_intdigest(projected_prefix(template) + field.encode() + arguments(values))


def watch_prefix(template: int) -> bytes:
    return b"key\0" + template.to_bytes(8, "big")


def membership_prefix(template: int) -> bytes:
    return b"mem\0" + template.to_bytes(8, "big")


def projected_prefix(template: int) -> bytes:
    return b"fld\0" + template.to_bytes(8, "big") + b"\0"


def to_hex(key: int) -> str:
    return f"{key:016x}"


def parse_key(text: str) -> int | None:
    """The key in a text, or None if it does not have the form of a key."""
    text = text.strip()
    if len(text) != _KEY_DIGITS:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    # `fromhex` also accepts spaces between digits, which leaves fewer bytes.
    return int.from_bytes(key, "big") if len(key) == _KEY_DIGITS // 2 else None


def key_id(text: str) -> int:
    """The 32-bit id of a key, or of any other text."""
    key = parse_key(text)
    if key is not None:
        return key & KEY_ID_MASK
    return xxh32_intdigest(text.strip().lower().encode())
