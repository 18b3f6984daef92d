"""A probe of a server whose storage says nothing."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.core.errors import StorageUnavailable
from headwater.http.messages import Request
from headwater.http.resources import about
from headwater.service.log import Log


class SilentLog:
    """As with a database whose packets are dropped."""

    engine = SimpleNamespace(streams=SimpleNamespace(next_id=lambda: 0))

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.answer = asyncio.Event()

    async def in_thread(self, work: Any) -> int:
        self.asked += 1
        await self.answer.wait()
        if self.fails:
            raise StorageUnavailable("too late")
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


def test_an_engine_that_fails_when_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "PATIENCE_S", 0.01)
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        log = SilentLog()
        server = about.About(cast("Log", log), console=False)
        with pytest.raises(StorageUnavailable):
            await server.ready(Request("GET", b"/readyz", b"", {}))
        log.fails = True
        log.answer.set()
        await asyncio.sleep(0)
        del server
        gc.collect()

    asyncio.run(scenario())
    gc.collect()
    assert complaints == []
