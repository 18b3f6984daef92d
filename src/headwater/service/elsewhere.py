"""Streams of any node of a cluster, for code that writes to one whoever owns it."""

from __future__ import annotations

from typing import Protocol

from headwater.core.decisions import Append


class Elsewhere(Protocol):
    """Operations on streams of any node. Raises what the streams' own methods raise."""

    async def append(self, path: str, command: Append) -> None: ...
    async def create(self, path: str, content_type: str) -> None:
        """Create it unless it exists, whatever it holds."""

    async def holds_json(self, path: str) -> bool:
        """Whether it holds JSON and accepts messages with any id."""
