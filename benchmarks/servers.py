"""Starting, awaiting and stopping one server process."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import procfs
from benchmarks.errors import ServerFailed
from benchmarks.subjects import Subject

_READY_SECONDS_MAX = 120.0
_STOP_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.002
_ANSWER_SECONDS_MAX = 60.0
_LOG_TAIL_CHARACTERS = 400


@dataclass
class Server:
    """A running server: where it listens, and when it started."""

    subject: Subject
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    started_at: float

    @property
    def pid(self) -> int:
        return self.process.pid

    def await_answer(self, method: str, path: str, statuses: range) -> float:
        """Retry until one of ``statuses`` comes; returns seconds since the process started."""
        return self._await(lambda: ask(self.port, method, path) in statuses)

    def _await(self, serves: Callable[[], bool]) -> float:
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.subject.label} ended at once: {self._log_tail()}")
            if serves():
                return time.monotonic() - self.started_at
            time.sleep(_POLL_SECONDS)
        raise ServerFailed(f"{self.subject.label} did not answer: {self._log_tail()}")

    def await_ready(self) -> float:
        """Wait until the server serves; a server without a health check may answer 404."""
        if self.subject.hello is not None:
            said, heard = self.subject.hello
            return self._await(lambda: exchange(self.port, said).startswith(heard))
        if self.subject.health_path is not None:
            return self.await_answer("GET", self.subject.health_path, range(200, 201))
        return self.await_answer("HEAD", "/v1/stream/no-such-stream", range(200, 500))

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise ServerFailed(f"{self.subject.label} ended while measured: {self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1].strip()[:_LOG_TAIL_CHARACTERS] if lines else "it wrote nothing"


@contextmanager
def running(subject: Subject, data_dir: Path) -> Iterator[Server]:
    """Start a server on a free loopback port and stop it, whatever happens in between."""
    data_dir.mkdir(parents=True, exist_ok=True)
    server = _start(subject, data_dir)
    try:
        yield server
        server.check_alive()
    finally:
        _stop(server.process)


def ask(port: int, method: str, path: str, content_type: str | None = None) -> int:
    """The status of one request on a new connection, 0 if nothing answers."""
    request = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    if content_type is not None:
        request += f"Content-Type: {content_type}\r\nContent-Length: 0\r\n"
    request += "\r\n"
    words = exchange(port, request.encode()).split(None, 2)
    return int(words[1]) if len(words) > 1 else 0


def exchange(port: int, data: bytes) -> bytes:
    """The beginning of the answer on a new connection, empty if nothing answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS_MAX) as peer:
            peer.sendall(data)
            return peer.recv(4096)
    except OSError:
        return b""


def _start(subject: Subject, data_dir: Path) -> Server:
    port = free_port()
    log = data_dir.parent / f"{data_dir.name}.log"
    with log.open("ab") as output:
        started_at = time.monotonic()
        try:
            process = subprocess.Popen(
                subject.command(port, data_dir),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise ServerFailed(f"{subject.label} cannot be started: {error}") from None
    return Server(subject, process, port, log, started_at)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        # It may have workers, which would outlive it: end every process now in its tree.
        for member in procfs.process_tree(process.pid):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
