"""The servers that are compared, and how each is started."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import ServerFailed

REFERENCE_PACKAGE = "@durable-streams/server"
REFERENCE_DIR = Path(__file__).parent / "reference"
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
    """For a server without HTTP: what to say to it, and how its answer begins when it serves."""


def headwater(python: str) -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return [python, "-m", "headwater", "serve", "--data", str(data_dir), "--port", str(port)]

    return Subject("headwater", "Headwater", True, "/healthz", command)


def headwater_in_memory(python: str, *options: str) -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return [python, "-m", "headwater", "serve", "--memory", "--port", str(port), *options]

    return Subject("headwater-memory", "Headwater in memory", False, "/healthz", command)


def reference_file() -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve.mjs"), str(port), "file", str(data_dir)]

    return Subject("reference-file", "reference file", True, None, command)


def reference_memory() -> Subject:
    def command(port: int, data_dir: Path) -> list[str]:
        return ["node", str(REFERENCE_DIR / "serve.mjs"), str(port), "memory"]

    return Subject("reference-memory", "reference memory", False, None, command)


def reference_version() -> str | None:
    """The installed version of the reference server, if it is installed."""
    manifest = REFERENCE_DIR / "node_modules" / REFERENCE_PACKAGE / "package.json"
    if not manifest.exists():
        return None
    return str(json.loads(manifest.read_text())["version"])


def install_reference() -> None:
    """Install the pinned reference server with ``npm ci`` unless it is there already.

    Its package.json overrides ``msgpackr-extract``, an optional native part of LMDB's codec: later
    versions are published for one platform only, and ``npm ci`` refuses a lock file with gaps.
    """
    wanted = json.loads((REFERENCE_DIR / "package.json").read_text())
    if reference_version() == wanted["dependencies"][REFERENCE_PACKAGE]:
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
