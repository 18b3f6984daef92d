"""A measuring window. Other clients use it too, where Headwater cannot be imported."""

import time

from benchmarks import procfs

Result = dict[str, float]


class Window:
    """CPU time of server and load generator between ``start`` and ``stop``."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._server_cpu = 0.0
        self._own_cpu = 0.0
        self._busy = 0.0
        self._started = 0.0

    def start(self) -> None:
        self._server_cpu = procfs.cpu_seconds(self._server_pid)
        self._own_cpu = time.process_time()
        self._busy = procfs.busy_seconds()
        self._started = time.monotonic()

    def stop(self) -> Result:
        seconds = time.monotonic() - self._started
        server = procfs.cpu_seconds(self._server_pid) - self._server_cpu
        own = time.process_time() - self._own_cpu
        others = procfs.busy_seconds() - self._busy - server - own
        return {
            "seconds": seconds,
            "server_cpu_seconds": server,
            "generator_cpu_share": own / seconds,
            "others_cpu_share": max(0.0, others / seconds),
        }
