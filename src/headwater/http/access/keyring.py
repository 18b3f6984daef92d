"""The API keys that the server knows, kept in sync with their file."""

from __future__ import annotations

from headwater.core.access import Caller, Credential
from headwater.core.access.grants import grants_from
from headwater.core.access.keys import KeyBook, KeyRecord, id_of, proves


class Keyring:
    def __init__(self) -> None:
        self._records: dict[str, KeyRecord] = {}
        self._callers: dict[str, Caller] = {}

    def __len__(self) -> int:
        return len(self._records)

    def replace(self, book: KeyBook) -> None:
        """Replace all keys. Callers whose key is gone or changed are expelled."""
        records = {record.id: record for record in book.keys}
        for key_id, caller in list(self._callers.items()):
            if records.get(key_id) != self._records[key_id]:
                caller.credential.ended = True
                del self._callers[key_id]
        for key_id, record in records.items():
            if key_id not in self._callers:
                self._callers[key_id] = _caller(record)
        self._records = records

    def find(self, token: str) -> Caller | None:
        """The caller whose key this is."""
        key_id = id_of(token) or ""
        return self._callers[key_id] if proves(token, self._records.get(key_id)) else None

    def by_id(self, key_id: str) -> Caller | None:
        return self._callers.get(key_id)


def _caller(record: KeyRecord) -> Caller:
    return Caller(
        name=f"key {record.id}",
        grants=grants_from(record.grants),
        credential=Credential(),
        expires_at_ms=record.expires_at_ms,
        key_id=record.id,
    )
