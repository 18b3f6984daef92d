"""The public Python client from PyPI, in its own virtual environment."""

import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.errors import PeerFailed

PEER_PACKAGE = "durable-streams"
_REQUIREMENTS = Path(__file__).parent / "peers.txt"
_DIR = Path(__file__).parent / "peers" / PEER_PACKAGE
_MARKER = _DIR / "installed.txt"
_PYTHON = _DIR / "bin" / "python"
_INSTALL_SECONDS_MAX = 300


def peer_version() -> str:
    """The pinned version."""
    found = re.search(rf"^{PEER_PACKAGE}==(\S+)", _REQUIREMENTS.read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def install_peer(python: str) -> str:
    """The interpreter that has the PyPI client: its environment is created on first use.

    It is created again if the pinned versions or the interpreter it was made with have changed.
    """
    wanted = f"{python}\n{_REQUIREMENTS.read_text()}"
    if _MARKER.exists() and _MARKER.read_text() == wanted:
        return str(_PYTHON)
    shutil.rmtree(_DIR, ignore_errors=True)
    _run([python, "-m", "venv", str(_DIR)])
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
    _run([str(_PYTHON), "-m", "pip", "install", *options, "-r", str(_REQUIREMENTS)])
    _MARKER.write_text(wanted)
    return str(_PYTHON)


def _run(command: list[str]) -> None:
    what = f"{PEER_PACKAGE} {peer_version()} from PyPI cannot be installed"
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS_MAX
        )
    except OSError as error:
        raise PeerFailed(f"{what}: {error}") from None
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{what}: it took more than {_INSTALL_SECONDS_MAX} s") from None
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or ["no message"]
        # pip says first what is wrong, and then at length what to think of it.
        reasons = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
        raise PeerFailed(f"{what}: {reasons[0].removeprefix('ERROR:').strip()}") from None
