"""The load generator of `bench` and of the project's own benchmarks, without a server."""

from __future__ import annotations

import asyncio
import math
import time

from headwater.cli.bench.generator import Pace, Sender, Tally


class Answered(Sender):
    """Is answered in the next turn of the loop; every third time with a failure."""

    def __init__(self, tally: Tally, pace: Pace | None = None) -> None:
        super().__init__(tally, pace)
        self.due_ns: list[int] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, due_ns: int) -> None:
        self.due_ns.append(due_ns)
        failed = self.tally.sent % 3 == 0
        asyncio.get_running_loop().call_soon(lambda: self.answered(failed=failed))

    def ended(self) -> None:
        self.over.set_result(None)


async def finish(*senders: Answered) -> None:
    for sender in senders:
        sender.send_next()
    async with asyncio.timeout(60):
        for sender in senders:
            await sender.over


async def test_senders_share_a_count() -> None:
    tally = Tally(count=100)
    await finish(*(Answered(tally) for _ in range(7)))
    assert (tally.sent, tally.errors, len(tally.latencies_ns)) == (100, 33, 67)


async def test_what_is_due_is_sent_late_rather_than_left_out() -> None:
    """Latency counts from when something was due, so a stall shows in all that it delayed."""
    tally = Tally(count=20)
    sender = Answered(tally, Pace(1e6, delay_s=-1.0))
    await finish(sender)
    assert sender.due_ns == sorted(set(sender.due_ns))
    assert min(tally.latencies_ns) > 0.9e9


async def test_nothing_is_sent_that_is_due_after_the_end() -> None:
    tally = Tally(until_ns=time.perf_counter_ns() + 3600e9)
    # The second is due hours after the end: nobody waits for it.
    sender = Answered(tally, Pace(1 / 36_000))
    await finish(sender)
    assert tally.sent == 1


async def test_a_sender_that_waits_notices_the_stop() -> None:
    tally = Tally()
    sender = Answered(tally, Pace(1.0, delay_s=0.2))
    sender.send_next()
    tally.stop()
    async with asyncio.timeout(60):
        await sender.over
    assert (tally.sent, tally.count) == (0, math.inf)
