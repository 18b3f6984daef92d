"""Answers about a stream that moves on while they are looked up: each is of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.offsets import Anchor
from headwater.service.log import Log
from headwater.service.ranges import plan_ranges

JSON = "application/json"


@pytest.fixture
async def moving(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Three messages; whenever something is looked up, two more come, and the stream closes."""
    await log.create(Create("s", JSON))
    for _ in range(3):
        await log.append("s", Append(b"1", JSON))
    # Otherwise nothing would have to be looked up.
    log.view(await log.entry("s")).hot.clear()
    look_up = log.in_thread
    # What the log does by itself may come first, and has nothing to do with it.
    background = asyncio.all_tasks() - {asyncio.current_task()}

    async def after_more(work: Callable[..., Any], *arguments: object) -> Any:
        is_asked = asyncio.current_task() not in background
        if is_asked and not log.view(await log.entry("s")).closed:
            await log.append("s", Append(b"[2, 3]", JSON, close=True))
        return await look_up(work, *arguments)

    monkeypatch.setattr(log, "in_thread", after_more)
    return log


@pytest.mark.parametrize("messages", [None, 1, 2, 3, 4, 100])
async def test_how_far_a_read_gets(moving: Log, messages: int | None) -> None:
    reach = await moving.reach("s", Anchor.START, messages, None)
    taken = min(3, messages or 3)
    assert (reach.end.position, reach.messages, reach.size_bytes) == (2 * taken, taken, 2 * taken)
    assert (reach.tail.position, reach.messages_behind, reach.closed) == (6, 3 - taken, False)


async def test_ranges(moving: Log) -> None:
    entry = await moving.entry("s")
    committed, ranges = await plan_ranges(moving, entry, Anchor.START, None, 2)
    assert committed == (6, 3, False)
    assert [(one.start, one.end, one.messages) for one in ranges] == [
        (0, 2, 1),
        (2, 4, 1),
        (4, 6, 1),
    ]
    assert moving.view(entry).now == (10, 5, True)
