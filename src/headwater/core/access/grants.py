"""Grants: the patterns for which a caller has each permission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec

from headwater.core.limits import PATTERNS_MAX
from headwater.core.paths import GROUPS
from headwater.core.patterns import InvalidPattern, Pattern, literal, parse_grant


class Permission(Enum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    ADMIN = "admin"


_Patterns = Annotated[list[str], msgspec.Meta(max_length=PATTERNS_MAX)]


class GrantsText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Grants as they appear in a key file or a token."""

    read: _Patterns = []
    write: _Patterns = []
    delete: _Patterns = []
    admin: _Patterns = []


@dataclass(frozen=True, slots=True)
class Grants:
    """Patterns by permission. `admin` over a stream includes all other permissions."""

    read: tuple[Pattern, ...] = ()
    write: tuple[Pattern, ...] = ()
    delete: tuple[Pattern, ...] = ()
    admin: tuple[Pattern, ...] = ()

    def allow(self, permission: Permission, path: str) -> bool:
        patterns: tuple[Pattern, ...] = getattr(self, permission.value)
        return _covered(patterns, path) or _covered(self.admin, path)

    def allow_group(self, path: str, group: str) -> bool:
        """Whether the caller may use and change a stream's group."""
        if not self.allow(Permission.READ, path):
            return False
        own_name = f"{path}/{GROUPS}/{group}"
        return self.allow(Permission.WRITE, path) or self.allow(Permission.WRITE, own_name)

    @property
    def administer_server(self) -> bool:
        return any(pattern.covers_everything for pattern in self.admin)

    def readable_prefixes(self) -> list[str]:
        """Prefixes of the names the caller may read: sorted, none contained in another."""
        prefixes: list[str] = []
        for prefix in sorted({pattern.prefix for pattern in (*self.read, *self.admin)}):
            if not prefixes or not prefix.startswith(prefixes[-1]):
                prefixes.append(prefix)
        return prefixes

    def text(self) -> GrantsText:
        return GrantsText(
            _texts(self.read), _texts(self.write), _texts(self.delete), _texts(self.admin)
        )


def read_only(path: str) -> Grants:
    """Permission to read one stream and nothing else."""
    return Grants(read=(literal(path),))


def grants_from(text: GrantsText) -> Grants:
    return Grants(
        _parsed(text.read), _parsed(text.write), _parsed(text.delete), _parsed(text.admin)
    )


def parse_grants(value: Any) -> Grants:
    """Grants from decoded JSON, such as a token's claim."""
    try:
        return grants_from(msgspec.convert(value, GrantsText))
    except msgspec.ValidationError as error:
        raise InvalidPattern(f"grants are lists of patterns by permission: {error}") from None


def _covered(patterns: Iterable[Pattern], path: str) -> bool:
    return any(pattern.covers(path) for pattern in patterns)


def _parsed(texts: list[str]) -> tuple[Pattern, ...]:
    return tuple(parse_grant(text) for text in texts)


def _texts(patterns: tuple[Pattern, ...]) -> list[str]:
    return [pattern.text for pattern in patterns]
