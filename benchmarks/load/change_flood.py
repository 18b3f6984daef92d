"""How many changes per second a live stream evaluates."""

import asyncio
import itertools
import time
from typing import Any

from benchmarks.load.changes import Lookup, Tables
from benchmarks.load.http import request, stream_path
from benchmarks.load.jobs import ChangeFlood
from benchmarks.load.measure import Result, Window
from benchmarks.load.touch import BUSY, Asker, Trouble, Waiter, ask_at, await_waiters, create_live

_SEED = 20_241_009
_VALUES = 100_000
_KEYS_PER_WAITER = 3
_BATCHES = 400
_BACK_OFF_SECONDS = 0.01
_SETTLE_MS = 4_000
# No limit on what the server may spend on precision: each change is to be evaluated closely.
_UNLIMITED: dict[str, object] = {
    "fineTouchBudgetPerBatch": 1_000_000,
    "fineTokensPerSecond": 100_000_000,
    "fineBurstTokens": 100_000_000,
    "templates": {"activationRateLimitPerMinute": 1_000},
}


class _Wakes:
    """Who was woken, and who without a reason."""

    def __init__(self) -> None:
        self.concerned: set[int] = set()
        self.true = self.false = 0

    def count(self, waiter: int) -> None:
        if waiter in self.concerned:
            self.true += 1
        else:
            self.false += 1


class _Writer:
    """Sends the next batch from inside the callback that saw the last one answered."""

    def __init__(self, asker: Asker, batches: "itertools.cycle[bytes]", until: float) -> None:
        self._asker = asker
        self._batches = batches
        self._batch = b""
        self._until = until
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.appended = 0
        self.refused = 0

    def write(self) -> None:
        if time.monotonic() >= self._until:
            self.done.set_result(None)
            return
        self._batch = next(self._batches)
        self._send()

    def _send(self) -> None:
        self._asker.send(self._batch, self._answered)

    def _answered(self, status: int) -> None:
        if status in {200, 204}:
            self.appended += 1
            self.write()
        elif status in BUSY:
            self.refused += 1
            self._loop.call_later(_BACK_OFF_SECONDS, self._send)
        else:
            self.done.set_exception(RuntimeError(f"an append was answered {status}"))


async def change_flood(job: ChangeFlood) -> Result:
    trouble, wakes, path = Trouble(), _Wakes(), stream_path(job.path)
    tables = Tables(job.tables, job.templates, _VALUES, _SEED)
    asker = await ask_at(job.port)
    cursor = await create_live(asker, path, tables.templates, _UNLIMITED)
    awaited = await _wait_all(job, path, tables, cursor, wakes, trouble)
    batches = itertools.cycle(_batches(job, path, tables, awaited, wakes))
    await trouble.beside(await_waiters(asker, path, job.waiters))
    window = Window(job.server_pid)
    window.start()
    until = time.monotonic() + job.seconds
    writers = [_Writer(await ask_at(job.port), batches, until) for _ in range(job.connections)]
    for writer in writers:
        writer.write()
    await trouble.beside(asyncio.gather(*[writer.done for writer in writers]))
    changes = job.batch_changes * sum(writer.appended for writer in writers)
    meta = await _settle(asker, path, job, changes)
    result = window.stop()
    return result | _figures(result, changes, meta, wakes) | {
        "errors": trouble.retries + sum(writer.refused for writer in writers)
    }  # fmt: skip


async def _wait_all(
    job: ChangeFlood, path: str, tables: Tables, cursor: str, wakes: _Wakes, trouble: Trouble
) -> dict[Lookup, list[int]]:
    """Start all waiters; returns who waits for what."""
    awaited: dict[Lookup, list[int]] = {}
    for number in range(job.waiters):
        lookups = [tables.lookup() for _ in range(_KEYS_PER_WAITER)]
        for lookup in lookups:
            awaited.setdefault(lookup, []).append(number)
        keys = [tables.key_of(lookup) for lookup in lookups]
        templates = [tables.template_of(lookup) for lookup in lookups]
        asker = await ask_at(job.port)
        Waiter(asker, path, number, keys, templates, wakes.count, trouble).wait(cursor.encode())
    return awaited


def _batches(
    job: ChangeFlood, path: str, tables: Tables, awaited: dict[Lookup, list[int]], wakes: _Wakes
) -> list[bytes]:
    """Appends that are sent over and over again."""
    numbers = itertools.count()
    batches: list[bytes] = []
    for _ in range(_BATCHES):
        changes: list[bytes] = []
        for number in itertools.islice(numbers, job.batch_changes):
            change, found = tables.change(number)
            changes.append(change)
            for lookup in awaited.keys() & found:
                wakes.concerned.update(awaited[lookup])
        batches.append(request("POST", path, b"[" + b",".join(changes) + b"]"))
    return batches


async def _settle(asker: Asker, path: str, job: ChangeFlood, changes: int) -> dict[str, Any]:
    give_up = time.monotonic() + job.settle_seconds
    settle = f"{path}/touch/meta?settle=flush&timeoutMs={_SETTLE_MS}"
    while time.monotonic() < give_up:
        meta = await asker.tell("GET", settle)
        if meta.get("settled"):
            return meta
    raise RuntimeError(
        f"{changes:,} changes were appended in {job.seconds:.0f} s, and not all of them looked at "
        f"{job.settle_seconds:.0f} s later"
    )


def _figures(window: Result, changes: int, meta: dict[str, Any], wakes: _Wakes) -> Result:
    figures = {
        "changes_per_second": changes / window["seconds"],
        "server_cpu_us_per_change": 1e6 * window["server_cpu_seconds"] / changes,
        "wakes": float(wakes.true + wakes.false),
        "false_wakes": float(wakes.false),
    }
    if "totalFallbackChanges" in meta:
        figures["fallback_percent"] = 100 * meta["totalFallbackChanges"] / changes
    return figures
