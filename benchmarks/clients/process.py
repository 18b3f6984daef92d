"""Running one client in its own process."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from benchmarks.clients.jobs import ClientJob
from benchmarks.errors import LoadFailed
from benchmarks.load.process import Result

_PROJECT_DIR = Path(__file__).parents[2]
_ERROR_CHARACTERS = 400


def run_client(
    python: str, job: ClientJob, seconds_max: float, meanwhile: Callable[[], Result] | None = None
) -> Result:
    """Run one job in its own process; ``meanwhile`` starts when the client is ready."""
    with subprocess.Popen(
        [python, "-m", "benchmarks.clients"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_PROJECT_DIR,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        killer = threading.Timer(seconds_max, process.kill)
        killer.start()
        try:
            process.stdin.write(job.to_json())
            process.stdin.close()
            is_ready = process.stdout.readline() == "ready\n"
            extra = meanwhile() if is_ready and meanwhile is not None else {}
            output, errors = process.stdout.read(), _errors(process)
            process.wait()
        finally:
            killer.cancel()
            process.kill()
    if process.returncode != 0:
        raise LoadFailed(f"the client failed ({process.returncode}): {errors}")
    result: Result = json.loads(output)
    return result | extra


def _errors(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines() or ["no message, or it took too long"]
    return lines[-1][:_ERROR_CHARACTERS]
