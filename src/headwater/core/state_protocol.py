"""The State Protocol: which records are valid, and how they fold into a state.

**Valid.** A record is an object with `headers`, and those hold one of two things:

* `operation` makes it a *change* of one entity, named by `type` and `key`, both non-empty strings.
  `insert`, `update` and `upsert` need a `value`: any JSON value, and null is one. `delete` needs
  none. `old_value` may hold what was there before.
* `control` makes it a statement about the state as a whole: `snapshot-start`, `snapshot-end` or
  `reset`. It may name an `offset`.

A record with both, or with neither, is invalid: it would be ambiguous. In `headers`, null counts as
missing. Other members are kept and ignored here.

**Folding.** `insert`, `update` and `upsert` all store the value. The stream is the truth, so a
missing or existing entity is no reason to refuse a record. `delete` removes the entity, if there is
one.

* What lies between `snapshot-start` and `snapshot-end` is a complete picture. It replaces the state
  when it ends, and until then counts for nothing. Another start begins afresh. An end without a
  start, as when reading began in the middle, means nothing.
* `reset` empties the state and drops an unfinished snapshot. If it names an offset ahead, what lies
  before that offset does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

Operation = Literal["insert", "update", "upsert", "delete"]
Control = Literal["snapshot-start", "snapshot-end", "reset"]

OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
DELETE: Final = "delete"
SNAPSHOT_START: Final = "snapshot-start"
SNAPSHOT_END: Final = "snapshot-end"
RESET: Final = "reset"

V = TypeVar("V")


# --- Validity ------------------------------------------------------------------------------------


class NotARecord(ValueError):
    """The message is not a record of the State Protocol; the text says why not."""


class Headers(msgspec.Struct, gc=False):
    operation: Operation | None = None
    control: Control | None = None
    offset: str | None = None


# A record cannot contain a reference cycle, so the garbage collector need not track it.
class Record(msgspec.Struct, Generic[V], gc=False):
    """A record whose values are of type V: `msgspec.Raw`, or what JSON decodes to."""

    headers: Headers
    type: str = ""
    key: str = ""
    value: V | UnsetType = UNSET
    old_value: V | UnsetType = UNSET


RawRecord = Record[msgspec.Raw]
_decoder: Final = msgspec.json.Decoder(RawRecord)


def read_record(message: bytes | str | msgspec.Raw) -> RawRecord:
    """Parse a JSON message as a record, leaving its values in JSON; `NotARecord` if it is none."""
    try:
        record = _decoder.decode(message)
    except RecursionError:
        raise NotARecord("is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotARecord(str(error)) from None
    return _valid(record)


def convert_record(message: Any) -> Record[Any]:
    """Convert a decoded message to a record; `NotARecord` if it is none."""
    try:
        record = msgspec.convert(message, Record[Any])
    except (msgspec.ValidationError, RecursionError) as error:
        raise NotARecord(str(error)) from None
    return _valid(record)


def _valid(record: Record[V]) -> Record[V]:
    problem = problem_of(record)
    if problem is not None:
        raise NotARecord(problem)
    return record


def problem_of(record: Record[V]) -> str | None:
    """Why a record with members of the right types is invalid; None if it is valid."""
    operation, control = record.headers.operation, record.headers.control
    if (operation is None) == (control is None):
        return "needs headers.operation or headers.control, one of the two"
    if control is not None:
        return None
    if not record.type:
        return "needs a type that is not empty"
    if not record.key:
        return "needs a key that is not empty"
    if record.value is UNSET and operation != DELETE:
        return f"is an {operation} and needs a value"
    return None


# --- Folding -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One entity that changed.

    Attributes:
        kind: what happened from this state's point of view.
        type: the entity's type.
        key: the entity's key.
        value: the value now; None after a delete.
        old_value: the value before; None before an insert.
        headers: the headers of the message; empty if a snapshot or reset caused the change.
    """

    kind: Literal["insert", "update", "delete"]
    type: str
    key: str
    value: Any = None
    old_value: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


Entities = dict[str, dict[str, Any]]
"""Values by type and key."""


class Fold:
    """A state, and what is needed to continue folding."""

    def __init__(self) -> None:
        self.entities: Entities = {}
        self.restart: str | None = None
        """The offset that the last reset named."""
        self._snapshot: Entities | None = None

    def apply(self, record: Record[Any], headers: Mapping[str, Any] | None = None) -> list[Change]:
        """Apply a valid record and return what changed."""
        if record.headers.control is not None:
            return self._control(record.headers)
        if self._snapshot is not None:
            _store(self._snapshot, record, {})
            return []
        return _store(self.entities, record, headers or {})

    def _control(self, headers: Headers) -> list[Change]:
        if headers.control == SNAPSHOT_START:
            self._snapshot = {}
            return []
        if headers.control == RESET:
            self._snapshot, self.restart = None, headers.offset
            return self._replace({})
        if self._snapshot is None:
            return []
        snapshot, self._snapshot = self._snapshot, None
        return self._replace(snapshot)

    def _replace(self, entities: Entities) -> list[Change]:
        before, self.entities = self.entities, entities
        changes = [
            Change("delete", type, key, old_value=value)
            for type, old in before.items()
            for key, value in old.items()
            if key not in entities.get(type, {})
        ]
        for type, new in entities.items():
            old = before.get(type, {})
            for key, value in new.items():
                if key not in old:
                    changes.append(Change("insert", type, key, value))
                elif old[key] != value:
                    changes.append(Change("update", type, key, value, old[key]))
        return changes


def _store(entities: Entities, record: Record[Any], headers: Mapping[str, Any]) -> list[Change]:
    type, key = record.type, record.key
    of_type = entities.setdefault(type, {})
    known, old_value = key in of_type, of_type.get(key)
    if record.headers.operation != DELETE:
        of_type[key] = record.value
        kind: Literal["insert", "update"] = "update" if known else "insert"
        return [Change(kind, type, key, record.value, old_value, headers)]
    of_type.pop(key, None)
    return [Change("delete", type, key, None, old_value, headers)] if known else []


def is_before(offset: str, restart: str | None) -> bool:
    """Whether an offset lies before the one that a reset named.

    Offsets of one stream have the same length and sort as text. Anything else in a reset is not an
    offset of this stream, and must not make a reader skip everything.
    """
    return restart is not None and len(offset) == len(restart) and offset < restart
