"""Requests that the caller may not make, or not from there."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


class Unauthorized(StreamError):
    code = "unauthorized"

    def __init__(
        self, message: str = "send a valid key or token: Authorization: Bearer …", *, sent: bool
    ) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether there was a token at all."""


class Forbidden(StreamError):
    """Names the missing permission, and reveals nothing about what exists."""

    code = "forbidden"

    def __init__(self, permission: str) -> None:
        super().__init__(
            f"this needs the permission to {permission} here; use another key or token"
        )
        self.permission = permission


class QuotaExceeded(StreamError):
    code = "quota_exceeded"

    def __init__(self, kind: str, account: str, limit: int) -> None:
        whose = repr(account) if account else "this server"
        super().__init__(
            f"{whose} may hold {limit} {kind}, and this would be more; delete something, or have "
            "the quota raised"
        )


class CrossSite(StreamError):
    code = "cross_site"

    def __init__(self, origin: str | None) -> None:
        shown = (origin or "another site")[:200]
        setting = f" with --cors-origin {shown}" if origin else " with --cors-origin"
        super().__init__(
            f"pages of {shown} may not change anything here; allow them{setting}, if they may"
        )


class UnknownHost(StreamError):
    code = "unknown_host"

    def __init__(self, host: str) -> None:
        name = host.rpartition(":")[0] or host
        super().__init__(
            f"this server is not known as {host[:200]!r}; use its address or localhost, or allow "
            f"the name with --allowed-host {name[:200]}"
        )


class JsonRequired(StreamError):
    code = "json_required"

    def __init__(self) -> None:
        super().__init__("send this from a page with Content-Type: application/json")
