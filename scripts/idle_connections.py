"""What idle connections cost: `python scripts/idle_connections.py [--count 10000] [--kind sse]`.

Starts a server, opens that many idle connections, and shows what its process then holds: memory,
open files, and whether a new client is still served. With `--access`, every reader has a token;
with `--tls CERT KEY`, connections use TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import jwt

_AT_A_TIME: Final = 100
_SECRET: Final = "only for this measurement, and only on this machine"


def memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Crowd:
    """Connections that are opened and then left alone."""

    def __init__(self, port: int, context: ssl.SSLContext | None, headers: str) -> None:
        self._port, self._context, self._headers = port, context, headers
        self.writers: list[asyncio.StreamWriter] = []

    async def ask(self, method: str, target: str, *, leave: bool = False) -> str:
        """The status line of an answer; `leave` keeps its connection open."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, limit=4096
        )
        writer.write(
            f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{self._headers}\r\n".encode()
        )
        line = (await reader.readline()).decode().strip()
        if leave:
            self.writers.append(writer)
        else:
            writer.close()
        return line

    async def gather(self, count: int, target: str) -> None:
        turn = asyncio.Semaphore(_AT_A_TIME)

        async def one() -> None:
            async with turn:
                line = await self.ask("GET", target, leave=True)
                if " 200 " not in line:
                    raise RuntimeError(f"refused: {line}")

        await asyncio.gather(*[one() for _ in range(count)])


async def measure(arguments: argparse.Namespace, pid: int, port: int) -> None:
    context = None
    if arguments.tls:
        # The certificate is our own, whoever signed it.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = ""
    if arguments.access:
        claims = {"exp": int(time.time()) + 3600, "headwater": {"admin": ["**"]}}
        headers = f"Authorization: Bearer {jwt.encode(claims, _SECRET, 'HS256')}\r\n"
    crowd = Crowd(port, context, headers)
    for _ in range(200):
        try:
            await crowd.ask("PUT", "/v1/stream/idle")
            break
        except OSError:
            await asyncio.sleep(0.05)
    before_kib, before_files = memory_kib(pid), open_files(pid)
    target = "/v1/stream/idle?offset=now&live=sse" if arguments.kind == "sse" else "/healthz"
    begun = time.perf_counter()
    await crowd.gather(arguments.count, target)
    took_s = time.perf_counter() - begun
    grown_kib = memory_kib(pid) - before_kib
    begun = time.perf_counter()
    answer = await crowd.ask("GET", "/v1/stream/idle")
    print(
        f"{arguments.count} idle connections ({arguments.kind}"
        f"{', tokens' if arguments.access else ''}{', TLS' if arguments.tls else ''}): "
        f"opened in {took_s:.1f} s, {grown_kib / 1024:.1f} MiB more "
        f"({grown_kib / arguments.count:.1f} KiB each), {open_files(pid) - before_files} more open "
        f"files; the next request: {answer!r} after {(time.perf_counter() - begun) * 1000:.1f} ms"
    )
    for writer in crowd.writers:
        writer.transport.abort()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--kind", choices=["sse", "keep-alive"], default="sse")
    parser.add_argument("--access", action="store_true", help="every connection has a token")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="serve with these")
    parser.add_argument("--port", type=int, default=14_437)
    arguments = parser.parse_args()
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write(_SECRET)
        secret.flush()
        flags = ["--memory", "--port", str(arguments.port), "--readers-per-caller-max", "0"]
        flags += ["--sse-lifetime-ms", "3600000"]
        if arguments.access:
            flags += ["--jwt-secret-file", secret.name]
        if arguments.tls:
            flags += ["--tls-cert", arguments.tls[0], "--tls-key", arguments.tls[1]]
        command = [sys.executable, "-m", "headwater", "serve", *flags]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            asyncio.run(measure(arguments, server.pid, arguments.port))
        finally:
            server.terminate()
            server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
