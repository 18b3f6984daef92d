"""The machine behind the figures: hardware, kernel, versions, disk."""

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import PEER_PACKAGE, peer_version
from benchmarks.subjects import REFERENCE_PACKAGE, reference_version

_SYNC_PROBE_SECONDS = 1.0


def describe(data_dir: Path, python: str, use_wrk: bool) -> dict[str, str]:
    """Everything a reader needs to judge the figures, as label → text."""
    load = os.getloadavg()
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{_memory_gib():.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "data directory": f"{_filesystem(data_dir)}, {_syncs_per_second(data_dir):,.0f} "
        "fdatasync/s of 4 KiB from one thread",
        "load average before": f"{load[0]:.2f} {load[1]:.2f} {load[2]:.2f}",
        "Headwater": _headwater_version(python),
        "reference": f"{REFERENCE_PACKAGE} {reference_version() or 'not installed'}",
        "client to compare with": f"{PEER_PACKAGE} {peer_version()} from PyPI",
        "Node.js": _first_line(["node", "--version"]),
        "load generator": _generator(use_wrk),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown CPU"


def _memory_gib() -> float:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return float(pages * page_bytes) / 2**30


def _filesystem(path: Path) -> str:
    """The type of the file system of ``path``: on tmpfs a sync costs nothing."""
    best_mount, best_type = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        inside = path.is_relative_to(mount)
        if inside and len(mount) >= len(best_mount):
            best_mount, best_type = mount, kind
    return best_type


def _syncs_per_second(directory: Path) -> float:
    """How often this disk can make 4 KiB durable: the ceiling for one sync per append."""
    probe = directory / "sync-probe"
    block = b"\0" * 4096
    descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        count, started = 0, time.monotonic()
        while (elapsed := time.monotonic() - started) < _SYNC_PROBE_SECONDS:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            count += 1
    finally:
        os.close(descriptor)
        probe.unlink()
    return count / elapsed


def _headwater_version(python: str) -> str:
    code = "import platform, headwater; print(headwater.__version__, 'on Python', end=' ');"
    # How an interpreter was built matters as much as its version.
    code += "print(platform.python_version(), f'({platform.python_compiler().strip()})')"
    return _first_line([python, "-c", code])


def _generator(use_wrk: bool) -> str:
    if not use_wrk:
        return "own"
    words = _first_line(["wrk", "--version"]).split()
    version = words[1] if len(words) > 1 else "of unknown version"
    return f"wrk {version} for appends, own for the rest"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "not found"
    # `wrk --version` exits with status 1, so the output decides and not the status.
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else "not found"
