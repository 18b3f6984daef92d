"""A probe of a server whose storage says nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core.errors import StorageUnavailable
from headwater.http import about
from headwater.http.messages import Request
from headwater.service.log import Log


class SilentLog:
    """As with a database whose packets are dropped."""

    engine = SimpleNamespace(streams=SimpleNamespace(next_id=lambda: 0))

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def in_thread(self, work: Any) -> int:
        self.asked += 1
        await self.answer.wait()
        return 0

    def problems(self) -> dict[str, str]:
        return {}


def test_a_silent_engine_is_said_to_be_silent_and_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(about, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        log = SilentLog()
        server = about.About(cast("Log", log), console=False)
        probe = Request("GET", b"/readyz", b"", {})
        for _ in range(3):
            with pytest.raises(StorageUnavailable, match="has not answered for"):
                await server.ready(probe)
        assert log.asked == 1
        log.answer.set()
        monkeypatch.setattr(about, "PATIENCE_S", 60.0)
        assert (await server.ready(probe)).status == 200
        assert (await server.ready(probe)).status == 200
        assert log.asked == 2

    asyncio.run(scenario())
