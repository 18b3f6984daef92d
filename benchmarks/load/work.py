"""Members of groups at work: fetch, acknowledge, fetch again."""

import asyncio
import itertools
import time
from collections.abc import Callable

from benchmarks.load.brokers import BROKERS, Broker, connect
from benchmarks.load.http import json_message
from benchmarks.load.jobs import FillBroker, Work
from benchmarks.load.measure import Result, Window

_FILL_CONNECTIONS = 4


class _Tally:
    """How much was acknowledged so far, and whether it is time to stop."""

    def __init__(self, most: int) -> None:
        self.acknowledged = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._most = most

    def add(self, count: int) -> None:
        self.acknowledged += count
        if self.acknowledged >= self._most and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(RuntimeError(reason))


class _Member:
    """Sends the next request from inside the callback that saw the last answer end."""

    def __init__(self, broker: Broker, number: int, job: Work, tally: _Tally) -> None:
        self._broker = broker
        self._name = f"member-{number}"
        self._job = job
        self._tally = tally
        own = range(number % job.groups, job.groups, job.consumers)
        self._turn = itertools.cycle([f"{job.group_prefix}{group}" for group in own])
        self._group = next(self._turn)
        self._receipts: list[bytes] = []
        self._message = json_message(job.message_bytes)

    def fetch(self) -> None:
        if not self._tally.finished.done():
            job = self._job
            self._broker.fetch(job.stream, self._group, self._name, job.fetch, self._fetched)

    def _fetched(self, receipts: list[bytes], _: bytes) -> None:
        if self._job.combined:
            # Acknowledgements sent with the fetch are confirmed by its answer.
            self._tally.add(len(self._receipts))
        self._receipts = receipts
        if not receipts:
            self._next()
        elif self._job.combined:
            self._ack_and_fetch()
        elif self._job.target:
            self._transact()
        else:
            self._broker.ack(self._job.stream, self._group, receipts, self._acknowledged)

    def _ack_and_fetch(self) -> None:
        if not self._tally.finished.done():
            job, name = self._job, self._name
            self._broker.ack_and_fetch(
                job.stream, self._group, name, self._receipts, job.fetch, self._fetched
            )

    def _acknowledged(self) -> None:
        self._tally.add(len(self._receipts))
        self._next()

    def _transact(self) -> None:
        job, receipt = self._job, self._receipts.pop()
        self._broker.transact(
            job.stream, self._group, receipt, job.target, self._message, self._transacted
        )

    def _transacted(self) -> None:
        self._tally.add(1)
        if not self._receipts:
            self._next()
        elif not self._tally.finished.done():
            self._transact()

    def _next(self) -> None:
        self._group = next(self._turn)
        self.fetch()


async def fill_broker(job: FillBroker) -> Result:
    tally = _Tally(job.messages)
    brokers = await connect(BROKERS[job.broker], job.port, _FILL_CONNECTIONS, tally.fail)
    started = time.monotonic()
    await _called(tally, lambda done: brokers[0].create_stream(job.stream, done))
    batch = [json_message(job.message_bytes)] * job.batch_messages
    batches_left = itertools.repeat(None, -(-job.messages // job.batch_messages))

    def append(broker: Broker) -> None:
        if next(batches_left, True) is None:
            broker.append(job.stream, batch, lambda: appended(broker))

    def appended(broker: Broker) -> None:
        tally.add(len(batch))
        append(broker)

    for broker in brokers:
        append(broker)
    await tally.finished
    for broker in brokers:
        broker.close()
    return {"messages": job.messages, "seconds": time.monotonic() - started}


async def work(job: Work) -> Result:
    tally = _Tally(job.messages_max)
    brokers = await connect(BROKERS[job.broker], job.port, job.consumers, tally.fail)
    creating = await _create_groups(brokers[0], job, tally)
    for number, broker in enumerate(brokers):
        _Member(broker, number, job, tally).fetch()
    await asyncio.wait([tally.finished], timeout=job.warmup_seconds)
    window = Window(job.server_pid)
    window.start()
    before = tally.acknowledged
    await asyncio.wait([tally.finished], timeout=job.seconds)
    result = window.stop()
    messages = tally.acknowledged - before
    if tally.finished.done():
        tally.finished.result()
    else:
        tally.finished.set_result(None)
    for broker in brokers:
        broker.close()
    if not messages:
        reason = "the stream was used up while warming up" if before else "nothing was acknowledged"
        raise RuntimeError(f"{reason}; there is no figure")
    what = "transactions" if job.target else "messages"
    return result | creating | {
        f"{what}_per_second": messages / result["seconds"],
        "server_cpu_us_per_message": 1e6 * result["server_cpu_seconds"] / messages,
    }  # fmt: skip


async def _create_groups(broker: Broker, job: Work, tally: _Tally) -> Result:
    started = time.monotonic()
    if job.target:
        await _called(tally, lambda done: broker.create_stream(job.target, done))
    for number in range(job.groups):
        name = f"{job.group_prefix}{number}"
        await _called(tally, lambda done, n=name: broker.create_group(job.stream, n, done))  # type: ignore[misc]
    if job.groups == 1:
        return {}
    return {"groups_created_per_second": job.groups / (time.monotonic() - started)}


async def _called(tally: _Tally, ask: Callable[[Callable[[], None]], None]) -> None:
    """Request something and wait until it is done; a failure ends the wait."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ask(lambda: None if answer.done() else answer.set_result(None))
    await asyncio.wait([answer, tally.finished], return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        tally.finished.result()
