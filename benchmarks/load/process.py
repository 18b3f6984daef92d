"""Running the load generator, ours or ``wrk``, in its own process."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import procfs
from benchmarks.errors import LoadFailed
from benchmarks.load.jobs import Append, Job
from benchmarks.spark.job import Figures, SparkJob

Result = dict[str, float]

_PROJECT_DIR = Path(__file__).parents[2]
_SCRIPT = Path(__file__).parent / "append.lua"
_ERROR_CHARACTERS = 400
_WRK_GRACE_SECONDS = 30.0


def run_job(job: Job, seconds_max: float) -> Result:
    """Run one job in its own process and return what it measured."""
    output = _run([sys.executable, "-m", "benchmarks.load"], seconds_max, job.to_json())
    result: Result = json.loads(output)
    return result


def run_spark(python: str, job: SparkJob, seconds_max: float) -> Figures:
    """Run a Spark session in its own process and return its measurements of each reader."""
    output = _run([python, "-m", "benchmarks.spark"], seconds_max, job.to_json())
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def wrk_installed() -> bool:
    return shutil.which("wrk") is not None


def run_wrk(job: Append) -> Result:
    """Run the append job with ``wrk``: warm up, then measure. Its streams must exist."""
    if job.warmup_seconds > 0:
        _wrk(job, job.warmup_seconds)
    server_cpu = procfs.cpu_seconds(job.server_pid)
    own_cpu = _cpu_of_ended_children()
    busy = procfs.busy_seconds()
    measured = _wrk(job, job.seconds)
    seconds = measured["microseconds"] / 1e6
    server_cpu = procfs.cpu_seconds(job.server_pid) - server_cpu
    own_cpu = _cpu_of_ended_children() - own_cpu
    others_cpu = procfs.busy_seconds() - busy - server_cpu - own_cpu
    errors = measured["status_errors"] + measured["socket_errors"]
    appends = measured["requests"] - measured["status_errors"]
    return {
        "seconds": seconds,
        "server_cpu_seconds": server_cpu,
        "generator_cpu_share": own_cpu / seconds,
        "others_cpu_share": max(0.0, others_cpu / seconds),
        "appends": appends,
        "errors": errors,
        "appends_per_second": appends / seconds,
        "p50_ms": measured["p50_us"] / 1e3,
        "p99_ms": measured["p99_us"] / 1e3,
    }


def _wrk(job: Append, seconds: float) -> Result:
    # wrk accepts whole seconds only.
    whole_seconds = max(1, round(seconds))
    options = ["-t1", f"-c{job.connections}", f"-d{whole_seconds}s", "--timeout", "30s"]
    arguments = [job.prefix, str(job.streams), str(job.message_bytes), str(job.messages)]
    url = f"http://127.0.0.1:{job.port}"
    command = ["wrk", *options, "-s", str(_SCRIPT), url, "--", *arguments]
    output = _run(command, whole_seconds + _WRK_GRACE_SECONDS)
    result: Result = json.loads(output.splitlines()[-1])
    return result


def _cpu_of_ended_children() -> float:
    # The servers are children too, but still running, and so not part of this sum.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(command: list[str], seconds_max: float, text: str = "") -> str:
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            cwd=_PROJECT_DIR,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"the load generator took more than {seconds_max:.0f} s") from None
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or ["no message"]
        raise LoadFailed(f"the load generator failed: {reason[-1][:_ERROR_CHARACTERS]}")
    return done.stdout
