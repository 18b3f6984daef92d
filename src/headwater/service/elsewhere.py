"""Streams of any node of a cluster, for those who write to one whoever owns it."""

from __future__ import annotations

from typing import Protocol

from headwater.core.decisions import Append


class Elsewhere(Protocol):
    """What is done with streams of any node. Raises what the streams' own methods do."""

    async def append(self, path: str, command: Append) -> None: ...
    async def create(self, path: str, content_type: str) -> None:
        """Unless there is one already, whatever it holds."""

    async def holds_json(self, path: str) -> bool:
        """Whether it holds JSON, and takes any message whatever its id."""
