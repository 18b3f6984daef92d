"""The servers that are compared, and how each is started."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import ServerFailed
from benchmarks.results import PRISMA, RUST, YJS_FILE, YJS_MEMORY

REFERENCE_PACKAGE = "@durable-streams/server"
YJS_PACKAGE = "@durable-streams/y-durable-streams"
PRISMA_PACKAGE = "@prisma/streams-server"
REFERENCE_DIR = Path(__file__).parent / "reference"
RUST_CRATE = "durable-streams"
RUST_VERSION = "0.1.5"
RUST_BINARY = "durable-streams-server"
RUST_DIR = Path(__file__).parent.parent / "build" / "peers"
_INSTALL_SECONDS_MAX = 300


@dataclass(frozen=True)
class Subject:
    """One server in one configuration."""

    name: str
    label: str
    durable: bool
    health_path: str | None
    command: Callable[[int, Path], list[str]]
    hello: tuple[bytes, bytes] | None = None
    """For a server without HTTP: what to send, and how its answer begins when it is ready."""
    once: bool = False
    """Measured in the first repetition only: its figures are far from all others."""


def headwater(python: str, *options: str) -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        serve = [python, "-m", "headwater", "serve", "--data", str(data_dir)]
        return [*serve, "--port", str(port), *options]

    return Subject("headwater", "Headwater", True, "/healthz", command)


def headwater_in_memory(python: str, *options: str) -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return [python, "-m", "headwater", "serve", "--memory", "--port", str(port), *options]

    return Subject("headwater-memory", "Headwater in memory", False, "/healthz", command)


def headwater_on(python: str, engine: str) -> Subject:
    """Alone on a PostgreSQL database."""

    def command(port: int, data_dir: Path) -> list[str]:
        return [python, "-m", "headwater", "serve", "--engine", engine, "--port", str(port)]

    return Subject("headwater", "Headwater", True, "/healthz", command)


def cluster_nodes(python: str, engine: str, more_ports: list[int]) -> Subject:
    """Nodes that share a PostgreSQL database, as one tree of processes."""

    def command(port: int, data_dir: Path) -> list[str]:
        ports = map(str, (port, *more_ports))
        return [sys.executable, "-m", "benchmarks.nodes", python, engine, *ports]

    return Subject("headwater", "Headwater", True, "/healthz", command)


def headwater_sealing(python: str) -> Subject:
    """Durable, and everything appended is sealed into history files at once."""

    def command(port: int, data_dir: Path) -> list[str]:
        return [*headwater(python).command(port, data_dir), "--seal-after-ms", "1000"]

    return Subject("headwater-sealing", "Headwater", True, "/healthz", command)


def reference_file() -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve.mjs"), str(port), "file", str(data_dir)]

    return Subject("reference-file", "reference file", True, None, command, once=True)


def reference_memory() -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve.mjs"), str(port), "memory"]

    return Subject("reference-memory", "reference memory", False, None, command, once=True)


def yjs_servers() -> list[Subject]:
    """The published document server, in front of each store of the reference server."""

    def in_file(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve_yjs.mjs"), str(port), "file", str(data_dir)]

    def in_memory(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve_yjs.mjs"), str(port), "memory"]

    label = f"Yjs server {_wanted_packages()[YJS_PACKAGE]}"
    return [
        Subject(YJS_FILE, f"{label}, file", True, None, in_file),
        Subject(YJS_MEMORY, f"{label}, memory", False, None, in_memory),
    ]


def rust_server() -> Subject | None:
    """Electric's server in Rust: the installed binary, or one built with cargo."""
    binary = shutil.which(RUST_BINARY) or shutil.which(RUST_BINARY, path=RUST_DIR / "bin")
    if binary is None and shutil.which("cargo") is not None:
        binary = _install_rust()
    if binary is None:
        return None

    def command(port: int, data_dir: Path) -> list[str]:
        return [binary, "--host", "127.0.0.1", "--port", str(port), "--data-dir", str(data_dir)]

    return Subject(RUST, f"Rust server {RUST_VERSION}", True, None, command)


def _install_rust() -> str | None:
    """Takes some minutes, once."""
    wanted = [RUST_CRATE, "--version", RUST_VERSION, "--root", str(RUST_DIR)]
    done = subprocess.run(["cargo", "install", "--quiet", *wanted], check=False)
    return shutil.which(RUST_BINARY, path=RUST_DIR / "bin") if done.returncode == 0 else None


def prisma_streams() -> Subject:
    """It runs on Bun, whose package contains the executable."""
    modules = REFERENCE_DIR / "node_modules"

    def command(port: int, data_dir: Path) -> list[str]:
        where = ["DS_HOST=127.0.0.1", f"PORT={port}", f"DS_ROOT={data_dir}"]
        server = modules / PRISMA_PACKAGE / "bin" / "prisma-streams-server"
        start = [str(modules / "bun" / "bin" / "bun.exe"), str(server)]
        return ["env", *where, *start, "--object-store", "local", "--no-auth"]

    label = f"Prisma Streams {_wanted_packages()[PRISMA_PACKAGE]}"
    return Subject(PRISMA, label, True, "/health", command)


def reference_version() -> str | None:
    """The installed version of the reference server, if it is installed."""
    return _installed_version(REFERENCE_PACKAGE)


def _installed_version(package: str) -> str | None:
    manifest = REFERENCE_DIR / "node_modules" / package / "package.json"
    if not manifest.exists():
        return None
    return str(json.loads(manifest.read_text())["version"])


def _wanted_packages() -> dict[str, str]:
    wanted: dict[str, str] = json.loads((REFERENCE_DIR / "package.json").read_text())[
        "dependencies"
    ]
    return wanted


def install_reference() -> None:
    """Install the pinned servers with ``npm ci`` unless they are installed already.

    Its package.json overrides ``msgpackr-extract``, an optional native part of LMDB's codec: later
    versions are published for one platform only, and ``npm ci`` refuses a lock file with gaps.
    """
    wanted = _wanted_packages()
    if all(_installed_version(package) == version for package, version in wanted.items()):
        return
    try:
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"],
            cwd=REFERENCE_DIR,
            check=True,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS_MAX,
        )
    except FileNotFoundError:
        raise ServerFailed("npm is not installed; use --skip-reference") from None
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"npm ci took more than {_INSTALL_SECONDS_MAX} s") from None
    except subprocess.CalledProcessError as error:
        raise ServerFailed(f"npm ci failed: {error.stderr.strip()}") from None
