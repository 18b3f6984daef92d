"""One timer of the loop for many moments: it rings for the earliest, once."""

from __future__ import annotations

import asyncio

from headwater.service.timers import WakeUp
from tests.support.logs import until

NEVER_MS = 10**9


async def test_an_earlier_moment_takes_the_place_of_a_later_one() -> None:
    rung: list[str] = []
    wake_up = WakeUp(lambda: 0, lambda: rung.append("now"))
    wake_up.at(NEVER_MS)
    wake_up.at(0)
    await until(lambda: rung == ["now"])


async def test_a_later_moment_changes_nothing() -> None:
    rung: list[str] = []
    wake_up = WakeUp(lambda: 0, lambda: rung.append("now"))
    wake_up.at(0)
    wake_up.at(NEVER_MS)
    await until(lambda: rung == ["now"])
    # It is ready for the next one.
    wake_up.at(0)
    await until(lambda: rung == ["now", "now"])


async def test_what_is_cancelled_does_not_ring() -> None:
    rung: list[str] = []
    wake_up = WakeUp(lambda: 0, lambda: rung.append("now"))
    wake_up.at(0)
    wake_up.cancel()
    other = WakeUp(lambda: 0, lambda: rung.append("other"))
    other.at(0)
    await until(lambda: bool(rung))
    await asyncio.sleep(0)
    assert rung == ["other"]
