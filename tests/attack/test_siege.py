"""Every attack at once for a minute; `make attack MINUTES=10` is the long form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.attack.bystander import percentile
from tests.attack.siege import MEMORY_MIB_MAX, Outcome, besiege

SECONDS: Final = 60.0
P99_S_MAX: Final = 0.25


def assert_held(outcome: Outcome) -> None:
    """What the server promises to everyone else, whatever some do."""
    client, log, report = outcome.client, outcome.log, outcome.report()
    for name, counts in outcome.attacks.items():
        assert counts.total() > 10, f"{name} did not take place\n{report}"
    assert not client.refused, report
    for times in (client.appends, client.deliveries, client.probes):
        assert percentile(times, 0.99) < P99_S_MAX * outcome.slowdown, report
    assert outcome.memory_mib < MEMORY_MIB_MAX, report
    assert outcome.attacks["send_trailers"]["closed by a trailer"] == 0, report
    assert outcome.attacks["poison_ordered_groups"]["wedged"] == 0, report
    assert not outcome.problems
    assert "task_failed" not in log
    assert "Traceback" not in log, log[log.index("Traceback") :][:4000]
    assert outcome.missing == {}
    assert outcome.missing_after_kill == {}


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc; needs all of 127.0.0.0/8")
async def test_everyone_else_is_served_while_a_server_is_attacked(tmp_path: Path) -> None:
    assert_held(await besiege(tmp_path, SECONDS))
