"""A Headwater server in its own process, for tests that need a real one.

    with ServerProcess("--data", str(tmp_path)) as server:
        httpx.put(server.stream_url("orders"))
        server.kill()       # SIGKILL, as a crash would
        server.start()      # same port, same arguments

The process is always ``python -m headwater serve``, run by the interpreter that runs the tests,
unless a test names another module or interpreter.
"""

from __future__ import annotations

import http.client
import itertools
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

HOST = "127.0.0.1"
POLL_INTERVAL_S = 0.02


class ServerFailedError(RuntimeError):
    """The server did not start, or did not stop; the message contains its output."""


# Below the system's ephemeral ports, with a share for each worker, so that nobody takes a port
# between our check and the start of the server.
_PORTS: Final = range(20_000, 32_000)


def _own_ports() -> Iterator[int]:
    """The ports of this worker, round and round, from a random start."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = _PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    start = random.SystemRandom().randrange(len(own))
    return itertools.cycle([*own[start:], *own[:start]])


_ports = _own_ports()


def free_port() -> int:
    """Return a port that was free a moment ago.

    Asking the server for port 0 would mean reading the answer from its output, and a restarted
    server must keep its address anyway.
    """
    for port in itertools.islice(_ports, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise ServerFailedError(f"no port between {_PORTS.start} and {_PORTS.stop} is free")


class ServerProcess:
    """One ``headwater serve`` process: start, stop, kill and restart it at a fixed address."""

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        python: Path | str = sys.executable,
        module: str = "headwater",
        cwd: Path | None = None,
        start_timeout_s: float = 180.0,
        stop_timeout_s: float = 180.0,
    ) -> None:
        self.args = args
        self.env = dict(env or {})
        self.port = free_port() if port is None else port
        self.python = str(python)
        self.module = module
        self.cwd = cwd
        self.start_timeout_s = start_timeout_s
        self.stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._past_output = ""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def stream_url(self, path: str) -> str:
        return f"{self.url}/v1/stream/{path}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stderr(self) -> str:
        """Everything written to standard error since the first start, over all restarts."""
        return self._past_output + self._current_output()

    def start(self) -> None:
        """Start the process and return once ``/healthz`` answers 200."""
        if self._process is not None:
            raise RuntimeError("the server is already started")
        # A file, not a pipe: a chatty server can never block on a missing reader.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is reaped
        self._process = subprocess.Popen(
            [self.python, "-m", self.module, "serve", "--port", str(self.port), *self.args],
            cwd=self.cwd,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        try:
            self._wait_until_healthy(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """Ask the process to exit (SIGTERM) and return its exit status."""
        process = self._running()
        process.terminate()
        try:
            process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailedError(
                f"still running {self.stop_timeout_s} s after SIGTERM\n{self.stderr}"
            ) from None
        return self._reap(process)

    def kill(self) -> int:
        """End the process as a crash would (SIGKILL: no handler runs, nothing is flushed)."""
        process = self._running()
        process.kill()
        return self._reap(process)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A test may have ended the process itself.
        if self._process is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not started")
        return self._process

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        status = process.wait()
        self._past_output += self._current_output()
        if self._log is not None:
            self._log.close()
        self._log = self._process = None
        return status

    def _current_output(self) -> str:
        if self._log is None:
            return ""
        # The child shares the file's position, so read without moving it.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        # Settings of the person who runs the tests must not reach the server under test.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        return inherited | self.env

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while not self._is_healthy():
            if process.poll() is not None:
                raise ServerFailedError(
                    f"exited with {process.returncode} before it was ready\n{self.stderr}"
                )
            if time.monotonic() > deadline:
                raise ServerFailedError(f"not ready after {self.start_timeout_s} s\n{self.stderr}")
            time.sleep(POLL_INTERVAL_S)

    def _is_healthy(self) -> bool:
        # http.client, because it never uses a proxy from the environment.
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5.0)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
