"""Options of the crash tests: how long, and which dice."""

from __future__ import annotations

import pytest

from tests.support import seeds

DEFAULT_SECONDS = 55
USUAL_SEED = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crash")
    group.addoption(
        "--crash-seconds",
        type=int,
        default=DEFAULT_SECONDS,
        help="how long to keep killing the server (default: %(default)s)",
    )
    group.addoption("--crash-seed", type=int, default=None, help="repeat the choices of a run")


# The options exist only when this directory is named on the command line, hence the defaults.


@pytest.fixture
def crash_seconds(request: pytest.FixtureRequest) -> int:
    seconds: int = request.config.getoption("crash_seconds", default=DEFAULT_SECONDS)
    return seconds


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Printed, so that a failure shows it: pytest captures what a passing test prints."""
    chosen: int | None = request.config.getoption("crash_seed", default=None)
    if chosen is None:
        chosen = seeds.one(USUAL_SEED)
    print(f"to repeat the choices of this test: pytest tests/crash --crash-seed {chosen}")
    return chosen
