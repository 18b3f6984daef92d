"""The public conformance suite through three nodes, a random one for every request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.test_conformance import (
    EXPECTED_TESTS,
    SERVER_LONG_POLL_MS,
    run_suite,
    vitest,
)
from tests.support.cluster import Cluster, Gateway
from tests.support.postgresql import EngineDatabase

__all__ = ["vitest"]


@pytest.mark.conformance
@pytest.mark.slow
def test_suite_passes_through_any_node(
    vitest: str,
    database: EngineDatabase,
    tmp_path: Path,
) -> None:
    options = ("--cors-origin", "*", "--long-poll-timeout-ms", str(SERVER_LONG_POLL_MS))
    with Cluster(database, *options) as cluster:
        with Gateway([node.port for node in cluster.nodes]) as gateway:
            report = run_suite(vitest, gateway.url, tmp_path / "report.json")
        if report.failed or report.exit_status != 0:
            print(report.output)
            names = "".join(f"\n  {name}" for name in report.failed)
            pytest.fail(f"{len(report.failed)} tests failed:{names}", pytrace=False)
        assert report.passed == EXPECTED_TESTS
        assert gateway.requests > EXPECTED_TESTS
