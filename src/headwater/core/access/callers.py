"""Callers: who a request comes from, with which grants, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.access.grants import Grants, Permission
from headwater.core.errors import Forbidden


class Credential:
    """What authenticates callers: a stored key, or the key that tokens are verified with.

    It ends when it is revoked, replaced or changed. Every caller that relies on it ends too,
    including those with requests in flight.
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    name: str
    """Identifies the caller, for rate limits and for people. Never a secret."""
    grants: Grants
    credential: Credential
    expires_at_ms: int | None = None
    key_id: str = ""
    """The stored key it used, if any."""

    def is_valid(self, now_ms: int) -> bool:
        if self.credential.ended:
            return False
        return self.expires_at_ms is None or now_ms < self.expires_at_ms

    def demand(self, permission: Permission, path: str) -> None:
        if not self.grants.allow(permission, path):
            raise Forbidden(permission.value)

    def demand_group(self, path: str, group: str) -> None:
        if not self.grants.allow_group(path, group):
            raise Forbidden("read and write")

    def demand_server(self) -> None:
        if not self.grants.administer_server:
            raise Forbidden("admin")
