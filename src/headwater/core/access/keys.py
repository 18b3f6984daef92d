"""API keys.

A key is `hw_{id}_{secret}`: twelve hexadecimal digits that identify it and may be shown, and 32
random bytes that prove it. It is shown once, when it is made. Only the SHA-256 of the whole key is
stored. That is enough: slow password hashes protect secrets that can be guessed, and nobody guesses
256 random bits. So a check takes a microsecond instead of a tenth of a second, which would let
anyone keep the server busy.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from headwater.core.access.grants import GrantsText
from headwater.core.limits import KEY_NAME_CHARS_MAX, KEYS_MAX

PREFIX: Final = "hw_"
ID_BYTES: Final = 6
SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"hw_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
# Compared against when there is no such key, so that both cases take the same time.
_NO_DIGEST: Final = "0" * 64


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is stored of a key."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}$")]
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    created_at_ms: int
    grants: GrantsText
    name: Annotated[str, msgspec.Meta(max_length=KEY_NAME_CHARS_MAX)] = ""
    expires_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"KeyRecord({self.id!r}, {self.name!r})"


class KeyBook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys of a server."""

    keys: Annotated[list[KeyRecord], msgspec.Meta(max_length=KEYS_MAX)] = []
    version: Annotated[int, msgspec.Meta(ge=1, le=2)] = 2

    def current(self) -> KeyBook:
        """The same keys in the current version.

        In version 1, `write` included the permission to delete. Keys from that version keep it.
        """
        if self.version == 2:
            return self
        return KeyBook([_with_delete(record) for record in self.keys])


def _with_delete(record: KeyRecord) -> KeyRecord:
    grants = msgspec.structs.replace(record.grants, delete=record.grants.write)
    return msgspec.structs.replace(record, grants=grants)


def format_key(id_bytes: bytes, secret: bytes) -> tuple[str, str]:
    """The id, and the whole key."""
    key_id = id_bytes.hex()
    return key_id, f"{PREFIX}{key_id}_{urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def digest_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def id_of(token: str) -> str | None:
    """The id in a token that looks like a key."""
    found = _KEY.fullmatch(token)
    return None if found is None else found[1]


def proves(token: str, record: KeyRecord | None) -> bool:
    """Whether a token is the key of this record."""
    expected = record.digest if record is not None else _NO_DIGEST
    return hmac.compare_digest(digest_of(token), expected) and record is not None
