"""CPU time and resident memory of a server, read from /proc.

A server may be one process or a parent with workers, so every figure is the sum over the process
and all its descendants. Shared pages are then counted once per process, which never flatters a
server with workers.
"""

import os
import resource
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> list[int]:
    """The process and its living descendants, the process itself first."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in children.read_text().split())
            except OSError:  # the thread ended between listing and reading
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time used so far by the process tree."""
    return sum(_cpu_seconds_of_one(member) for member in process_tree(pid))


def cpu_by_process(pid: int) -> dict[int, float]:
    """The same for each of its processes, to compare if some come and go meanwhile."""
    return {member: _cpu_seconds_of_one(member) for member in process_tree(pid)}


def resident_bytes(pid: int) -> int:
    """Resident memory of the process tree."""
    return sum(_resident_bytes_of_one(member) for member in process_tree(pid))


def busy_seconds() -> float:
    """CPU time the whole machine has spent working since boot, on anything."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, fields[1:9])
    return (user + nice + system + irq + softirq + stolen) / _TICKS_PER_SECOND


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _cpu_seconds_of_one(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The second field is the command in parentheses and may contain spaces; count from after it.
    fields = stat[stat.rindex(")") + 2 :].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / _TICKS_PER_SECOND


def _resident_bytes_of_one(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
