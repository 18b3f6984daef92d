"""From when a writer wants to append a message until a member of a group has it."""

import asyncio
import time

from benchmarks.load.brokers import BROKERS, Broker, connect
from benchmarks.load.jobs import PacedWork
from benchmarks.load.measure import Result, Window
from benchmarks.load.pacing import PacedWriter, Tally, stop
from benchmarks.load.sse import AT_FROM, AT_UNTIL, MARK_START, marked_message

_GROUP = "paced"
_AUTHOR = b"000000"


class _Tally(Tally):
    def deliver(self, data: bytes) -> None:
        mark, now_ns = data.find(MARK_START), time.monotonic_ns()
        at_ns = int(data[mark + AT_FROM : mark + AT_UNTIL])
        if self.counts(at_ns):
            self.latencies_ns.append(now_ns - at_ns)
            self.check_complete()


class _Writer(PacedWriter):
    def __init__(self, broker: Broker, job: PacedWork, tally: _Tally) -> None:
        super().__init__(tally)
        self._broker = broker
        self._stream = job.stream
        self._before, self._after = marked_message(_AUTHOR, job.message_bytes)

    def send(self, at_ns: int) -> None:
        message = self._before + b"%019d" % at_ns + self._after
        self._broker.append(self._stream, [message], self.answered)


class _Member:
    """Takes one message at a time and acknowledges it."""

    def __init__(self, broker: Broker, number: int, job: PacedWork, tally: _Tally) -> None:
        self._broker = broker
        self._stream = job.stream
        self._name = f"member-{number}"
        self._tally = tally

    def fetch(self) -> None:
        self._broker.fetch(self._stream, _GROUP, self._name, 1, self._fetched)

    def _fetched(self, receipts: list[bytes], data: bytes) -> None:
        if receipts:
            self._tally.deliver(data)
            self._broker.ack(self._stream, _GROUP, receipts, self.fetch)
        else:
            self.fetch()


async def paced_work(job: PacedWork) -> Result:
    tally = _Tally()
    kind = BROKERS[job.broker]
    brokers = await connect(kind, job.port, job.writers + job.consumers, tally.fail)
    await _create(brokers[0], job, tally)
    writers = [_Writer(broker, job, tally) for broker in brokers[: job.writers]]
    for number, broker in enumerate(brokers[job.writers :]):
        _Member(broker, number, job, tally).fetch()
    for number, writer in enumerate(writers):
        writer.start(job.rate / job.writers, number / job.rate)
    result = await _measure(job, writers, tally)
    for broker in brokers:
        broker.close()
    return result | tally.figures(tally.written, job.drain_seconds) | {
        "offered_per_second": tally.written / job.seconds
    }  # fmt: skip


async def _create(broker: Broker, job: PacedWork, tally: _Tally) -> None:
    created: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker.create_stream(
        job.stream,
        lambda: broker.create_group(job.stream, _GROUP, lambda: created.set_result(None)),
    )
    await asyncio.wait([created, tally.finished], return_when=asyncio.FIRST_COMPLETED)
    if tally.finished.done():
        tally.finished.result()


async def _measure(job: PacedWork, writers: list[_Writer], tally: _Tally) -> Result:
    await asyncio.wait([tally.finished], timeout=job.warmup_seconds)
    window = Window(job.server_pid)
    window.start()
    tally.open_window(job.seconds)
    await asyncio.wait([tally.finished], timeout=job.seconds)
    result = window.stop()
    stop(writers)
    await tally.drain(tally.written, job.drain_seconds)
    return result
