"""Redis and NATS: systems that distribute work, each at its most durable and with its defaults.

Install both for the comparison: `apt-get install redis-server nats-server`.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import ServerFailed
from benchmarks.results import NATS, REDIS
from benchmarks.subjects import Subject

_TOOL_SECONDS_MAX = 20
_NATS_CONFIG = """\
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}", max_file_store: 64GB{sync} }}
"""
_NATS_SYNC = ", sync_interval: always"


@dataclass(frozen=True)
class Peer:
    """A system that Headwater's groups are compared with."""

    name: str
    program: str
    server: Callable[[bool], Subject]
    has_transactions: bool
    acks_with_fetch: bool

    @property
    def label(self) -> str:
        return f"{self.server(True).label} {self.version()}"

    def version(self) -> str:
        if shutil.which(self.program) is None:
            return "not installed"
        command = [self.program, "--version"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TOOL_SECONDS_MAX, check=False
        )
        found = re.search(r"v=?(\d+(\.\d+)+)", done.stdout)
        return found[1] if found else "of unknown version"


def redis(durable: bool) -> Subject:
    keep = ["yes", "--appendfsync", "always"] if durable else ["no"]

    def command(port: int, data_dir: Path) -> list[str]:
        where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data_dir)]
        return [_installed("redis-server"), *where, "--save", "", "--appendonly", *keep]

    return Subject(REDIS, "Redis", durable, None, command, (b"PING\r\n", b"+PONG"))


def nats(durable: bool) -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        if durable and not _nats_can_sync():
            raise ServerFailed(
                f"NATS {NATS_PEER.version()} does not know sync_interval: always, which came with "
                "2.10; without it, what NATS acknowledges is not on the disk yet"
            )
        config = data_dir / "nats.conf"
        sync = _NATS_SYNC if durable else ""
        config.write_text(_NATS_CONFIG.format(port=port, store=data_dir / "js", sync=sync))
        return [_installed("nats-server"), "-c", str(config)]

    return Subject(NATS, "NATS", durable, None, command, (b"PING\r\n", b"INFO"))


REDIS_PEER = Peer(REDIS, "redis-server", redis, has_transactions=True, acks_with_fetch=True)
NATS_PEER = Peer(NATS, "nats-server", nats, has_transactions=False, acks_with_fetch=False)
PEERS = (REDIS_PEER, NATS_PEER)


def _installed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ServerFailed(f"{program} is not installed; apt-get install {program}")
    return found


def _nats_can_sync() -> bool:
    """Whether this version accepts the setting: it can check a configuration without serving."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "nats.conf"
        config.write_text(_NATS_CONFIG.format(port=0, store=directory, sync=_NATS_SYNC))
        command = [_installed("nats-server"), "-t", "-c", str(config)]
        done = subprocess.run(command, capture_output=True, timeout=_TOOL_SECONDS_MAX, check=False)
    return done.returncode == 0
