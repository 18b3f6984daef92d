"""The public Durable Streams conformance suite, run against each engine.

The suite is a node package; this module starts a server, runs the suite over it and reads its
report. What the suite checks is listed in its own source; a failure here names the test there.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.support import node_packages
from tests.support.object_storage import ObjectStorage
from tests.support.postgresql import EngineDatabase
from tests.support.sealing import SEALING_AT_ONCE

HARNESS = Path(__file__).parent

# Tests in the pinned version of the suite. Counting them guards against a suite that silently stops
# finding its own tests.
EXPECTED_TESTS = 338

# The server gives up on a long-poll early to keep the run short; the suite allows far more.
SERVER_LONG_POLL_MS = 500
SUITE_LONG_POLL_BUDGET_MS = 10_000

SUITE_TIMEOUT_S = 600


@dataclass(frozen=True)
class Report:
    passed: int
    failed: tuple[str, ...]
    exit_status: int
    output: str


@pytest.fixture(scope="module")
def vitest() -> str:
    """The installed test runner; installs it when `make test` has not done so already."""
    packages = node_packages.install(HARNESS, needed_by="the conformance tests")
    # Not through npx: stopping npx would leave the runner it started behind.
    return str(packages / ".bin" / "vitest")


@pytest.fixture
def object_storage() -> Iterator[ObjectStorage]:
    """S3 for who starts it."""
    storage = ObjectStorage()
    yield storage
    storage.stop()


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "sqlite", "history", "s3", "postgresql", "archive"])
def test_suite_passes(
    engine: str,
    vitest: str,
    start_server: StartServer,
    object_storage: ObjectStorage,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    storage = ["--memory"] if engine == "memory" else ["--data", str(tmp_path / "data")]
    env: dict[str, str] = {}
    if engine in ("postgresql", "archive"):
        database: EngineDatabase = request.getfixturevalue("database")
        storage += ["--engine", database.url]
    if engine in ("history", "s3", "archive"):
        # Everything is sealed almost at once, into files so small that reads cross them.
        storage += [*SEALING_AT_ONCE, "--segment-bytes", "1024", "--hot-bytes-per-stream-max", "0"]
    if engine in ("s3", "archive"):
        object_storage.start()
        env = object_storage.environment
        storage += ["--history-store", object_storage.url, "--history-local-bytes-max", "0"]
        storage += ["--history-cache-bytes-max", "0"]
    # The suite looks for the headers that let pages of any site in, which is no default.
    storage += ["--cors-origin", "*"]
    server = start_server(*storage, "--long-poll-timeout-ms", str(SERVER_LONG_POLL_MS), env=env)

    report = run_suite(vitest, server.url, tmp_path / "report.json")

    if report.failed or report.exit_status != 0:
        # pytest shows what a failing test printed.
        print(report.output, f"--- server ---\n{server.stderr}", sep="\n")
        names = "".join(f"\n  {name}" for name in report.failed)
        status, count = report.exit_status, len(report.failed)
        pytest.fail(f"vitest ended with {status}, {count} tests failed:{names}", pytrace=False)
    assert report.passed == EXPECTED_TESTS


def run_suite(vitest: str, url: str, report_path: Path) -> Report:
    """Run the suite against the server at `url` and return what its JSON report says."""
    completed = subprocess.run(
        [vitest, "run", "--reporter=dot", "--reporter=json", f"--outputFile.json={report_path}"],
        cwd=HARNESS,
        env=os.environ
        | {
            "HEADWATER_URL": url,
            "HEADWATER_LONG_POLL_BUDGET_MS": str(SUITE_LONG_POLL_BUDGET_MS),
            "NO_COLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    if not report_path.exists():
        pytest.fail(f"the suite did not run:\n{completed.stdout}", pytrace=False)
    report = json.loads(report_path.read_text())
    tests = [test for file in report["testResults"] for test in file["assertionResults"]]
    return Report(
        passed=sum(test["status"] == "passed" for test in tests),
        failed=tuple(test["fullName"] for test in tests if test["status"] == "failed"),
        exit_status=completed.returncode,
        output=completed.stdout,
    )
