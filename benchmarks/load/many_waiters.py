"""Very many waiting queries, and what it takes to wake a few of them."""

import random
import time
from array import array

from benchmarks import procfs
from benchmarks.load.changes import OWNER, TABLE, edited, owner_key, owner_template
from benchmarks.load.http import request, stream_path
from benchmarks.load.jobs import ManyWaiters
from benchmarks.load.latencies import latency_figures
from benchmarks.load.measure import Result, Window
from benchmarks.load.touch import Asker, Trouble, Waiter, ask_at, await_waiters, create_live

_SEED = 20_241_009
_KEYS_PER_WAITER = 3
_POLL_SECONDS = 0.001


class _Rounds:
    """One append after the other, and who has been notified of it."""

    def __init__(self) -> None:
        self.sent_ns = 0
        self.asleep: set[int] = set()
        """The queries that the last append concerns and that have not been notified yet."""
        self.missing = 0
        self.false_wakes = 0
        self.latencies_ns = array("q")

    def touched(self, waiter: int) -> None:
        if waiter in self.asleep:
            self.asleep.discard(waiter)
            self.latencies_ns.append(time.monotonic_ns() - self.sent_ns)
        else:
            self.false_wakes += 1


async def many_waiters(job: ManyWaiters) -> Result:
    trouble, rounds, path = Trouble(), _Rounds(), stream_path(job.path)
    asker = await ask_at(job.port)
    cursor = await create_live(asker, path, [(TABLE, OWNER)])
    await trouble.sleep(job.settle_seconds)
    before = procfs.resident_bytes(job.server_pid)
    cpu = procfs.cpu_seconds(job.server_pid)
    for number in range(job.waiters):
        keys = [owner_key(owner) for owner in _owners(number)]
        waiter = Waiter(
            await ask_at(job.port), path, number, keys, [owner_template()], rounds.touched, trouble
        )
        waiter.wait(cursor.encode())
    await trouble.beside(await_waiters(asker, path, job.waiters))
    cpu = procfs.cpu_seconds(job.server_pid) - cpu
    await trouble.sleep(job.settle_seconds)
    after = procfs.resident_bytes(job.server_pid)
    window = Window(job.server_pid)
    window.start()
    await _wake_some(job, asker, path, rounds, trouble)
    return window.stop() | _figures(rounds, job) | {
        "memory_kib_per_waiter": (after - before) / 1024 / job.waiters,
        "memory_mib": after / 2**20,
        "errors": trouble.retries,
        "server_cpu_us_per_wait": 1e6 * cpu / job.waiters,
    }  # fmt: skip


def _owners(waiter: int) -> range:
    return range(waiter * _KEYS_PER_WAITER, (waiter + 1) * _KEYS_PER_WAITER)


async def _wake_some(
    job: ManyWaiters, asker: Asker, path: str, rounds: _Rounds, trouble: Trouble
) -> None:
    """One append at a time; the next when it is due and everyone was notified of the last."""
    pick = random.Random(_SEED)
    version = 0
    due = time.monotonic()
    until = due + job.seconds
    while due < until:
        version += 1
        chosen = pick.sample(range(job.waiters), job.touched)
        changes = [edited(pick.choice(_owners(waiter)), version) for waiter in chosen]
        rounds.asleep = set(chosen)
        rounds.sent_ns = time.monotonic_ns()
        body = b"[" + b",".join(changes) + b"]"
        status = await trouble.beside(asker.ask(request("POST", path, body)))
        if status not in {200, 204}:
            raise RuntimeError(f"an append was answered {status}")
        give_up = time.monotonic() + job.drain_seconds
        while rounds.asleep and time.monotonic() < give_up:
            await trouble.sleep(_POLL_SECONDS)
        rounds.missing += len(rounds.asleep)
        due = max(due + 1 / job.rate, time.monotonic())
        await trouble.sleep(due - time.monotonic())


def _figures(rounds: _Rounds, job: ManyWaiters) -> Result:
    told = len(rounds.latencies_ns)
    unheard = [int(job.drain_seconds * 1e9)] * rounds.missing
    latencies = [*rounds.latencies_ns, *unheard]
    return latency_figures(latencies) | {
        "delivered_percent": 100 * told / len(latencies) if latencies else 0.0,
        "wakes": float(told + rounds.false_wakes),
        "false_wakes": float(rounds.false_wakes),
    }
