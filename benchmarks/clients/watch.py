"""Measures a client from inside its process, whichever client it is."""

import sys
import time
from collections.abc import AsyncIterable, Iterable
from pathlib import Path

from benchmarks.clients.jobs import ClientJob
from benchmarks.load.measure import Result, Window

_MIB = 1024 * 1024


class Watch:
    """Rate, CPU time and memory between ``ready`` and ``stop``."""

    def __init__(self, job: ClientJob) -> None:
        self._job = job
        self._window = Window(job.server_pid)
        self._cpu = 0.0
        self._begun = 0.0
        self._peak_early = 0.0
        self._marks: list[int] = []

    def ready(self) -> None:
        """The client is connected and warm; measuring starts now."""
        self._marks = sorted({1, self._job.early_messages, self._job.messages} - {0})
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        self._window.start()
        self._cpu = time.process_time()
        self._begun = time.monotonic()

    def count(self, messages: Iterable[object]) -> None:
        """Consume as many messages as the job says."""
        taken, mark = 0, self._marks.pop(0)
        for _ in messages:
            taken += 1
            if taken == mark:
                self._reached(taken)
                if not self._marks:
                    return
                mark = self._marks.pop(0)
        raise RuntimeError(f"only {taken} of {self._job.messages} messages came")

    async def acount(self, messages: AsyncIterable[object]) -> None:
        taken, mark = 0, self._marks.pop(0)
        async for _ in messages:
            taken += 1
            if taken == mark:
                self._reached(taken)
                if not self._marks:
                    return
                mark = self._marks.pop(0)
        raise RuntimeError(f"only {taken} of {self._job.messages} messages came")

    def stop(self) -> Result:
        seconds = time.monotonic() - self._begun
        cpu = time.process_time() - self._cpu
        messages = self._job.messages
        # The kernel's count is approximate, so its peak may be a little lower later on.
        peak = max(_peak_mib(), self._peak_early)
        result = self._window.stop() | {
            "messages_per_second": messages / seconds,
            "client_cpu_us_per_message": 1e6 * cpu / messages,
            "generator_cpu_share": cpu / seconds,
            "peak_mib": peak,
        }
        if self._peak_early:
            result |= {"peak_early_mib": self._peak_early, "growth_mib": peak - self._peak_early}
        return result

    def _reached(self, taken: int) -> None:
        if taken == 1 and self._job.kind == "follow":
            # Until now the client has waited for the producer to start.
            self._begun = time.monotonic()
        if taken == self._job.early_messages:
            self._peak_early = _peak_mib()


def _peak_mib() -> float:
    """The peak resident memory. `getrusage` would include the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / _MIB
    raise RuntimeError("this kernel does not tell the peak of resident memory")
