"""Callers that wait for the same thing, some of which give up."""

from __future__ import annotations

import asyncio
import gc

import pytest

from headwater.service.waiting import shared
from tests.support.logs import begin, turns


@pytest.fixture
async def complaints() -> list[dict[str, object]]:
    """What the event loop would log."""
    found: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def test_everyone_gets_the_outcome() -> None:
    future = asyncio.get_running_loop().create_future()
    waiting = [begin(shared(future)) for _ in range(2)]
    await turns(3)
    future.set_result(7)
    assert await asyncio.gather(*waiting) == [7, 7]
    assert await shared(future) == 7


async def test_who_gives_up_ends_it_for_nobody_else() -> None:
    future = asyncio.get_running_loop().create_future()
    one, other = begin(shared(future)), begin(shared(future))
    await turns(3)
    one.cancel()
    await turns(3)
    assert one.cancelled()
    future.set_exception(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        await other


async def test_an_error_after_everyone_gave_up_is_nobodys(
    complaints: list[dict[str, object]],
) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting = begin(shared(future))
    await turns(3)
    waiting.cancel()
    await turns(3)
    future.set_exception(ValueError("bad"))
    await turns(3)
    del future, waiting
    gc.collect()
    assert complaints == []
