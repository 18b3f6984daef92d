"""From sending a change until the query that it concerns is notified."""

import time

from benchmarks.load.changes import OWNER, TABLE, edited, owner_key, owner_template
from benchmarks.load.http import request, stream_path
from benchmarks.load.jobs import PacedChanges
from benchmarks.load.measure import Result, Window
from benchmarks.load.pacing import Paced, Tally, start_spread, stop
from benchmarks.load.touch import Asker, Trouble, Waiter, ask_at, create_live

_OWNER = 48_213


class _Query(Paced):
    """One live stream: a writer at a fixed pace, and the query that waits for its changes.

    Only one change is in flight at a time, so that each wake belongs to one change. If a change is
    not through when the next is due, the next is sent as soon as it is.
    """

    def __init__(self, writer: Asker, path: str, tally: Tally, trouble: Trouble) -> None:
        super().__init__(tally)
        self._writer = writer
        self._path = path
        self._trouble = trouble
        self._version = 0
        self._is_late = False
        self._sent_ns = 0
        self._counts = False
        self._answered = self._seen = True

    @property
    def is_through(self) -> bool:
        return self._answered and self._seen

    def due(self) -> None:
        if self.is_through:
            self._send()
        else:
            self._is_late = True

    def _send(self) -> None:
        self._is_late = self._answered = self._seen = False
        self._version += 1
        self._sent_ns = time.monotonic_ns()
        self._counts = self.tally.counts(self._sent_ns)
        self.tally.written += self._counts
        change = edited(_OWNER, self._version)
        self._writer.send(request("POST", self._path, change), self._appended)

    def _appended(self, status: int) -> None:
        if status not in {200, 204}:
            self._trouble.report(f"an append was answered {status}")
            return
        self._answered = True
        self._go_on()

    def touched(self, _: int) -> None:
        if not self._seen:
            self._seen = True
            if self._counts:
                self.tally.latencies_ns.append(time.monotonic_ns() - self._sent_ns)
            self._go_on()

    def _go_on(self) -> None:
        if self.is_through and self._is_late and not self.stopped:
            self._send()


async def paced_changes(job: PacedChanges) -> Result:
    tally, trouble = Tally(), Trouble()
    queries = [await _query(job, number, tally, trouble) for number in range(job.streams)]
    start_spread(queries, job.rate)
    await trouble.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    tally.open_window(job.seconds)
    window.start()
    await trouble.sleep(job.seconds)
    result = window.stop()
    stop(queries)
    deadline = time.monotonic() + job.drain_seconds
    while time.monotonic() < deadline and not all(query.is_through for query in queries):
        await trouble.sleep(0.02)
    return result | tally.figures(tally.written, job.drain_seconds) | {
        "seen_per_second": len(tally.latencies_ns) / job.seconds,
        "errors": trouble.retries,
    }  # fmt: skip


async def _query(job: PacedChanges, number: int, tally: Tally, trouble: Trouble) -> _Query:
    path = stream_path(f"{job.prefix}{number}")
    writer = await ask_at(job.port)
    cursor = await create_live(writer, path, [(TABLE, OWNER)])
    query = _Query(writer, path, tally, trouble)
    keys, templates = [owner_key(_OWNER)], [owner_template()]
    waiter = Waiter(await ask_at(job.port), path, 0, keys, templates, query.touched, trouble)
    waiter.wait(cursor.encode())
    return query
