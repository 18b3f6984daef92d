"""Every attack at once for a minute; `make attack MINUTES=10` is the long form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.attack.exhaustion import exhaust
from tests.attack.siege import besiege

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="looks into /proc; needs all of 127.0.0.0/8"
    ),
]


@pytest.mark.parametrize("access, seconds", [("on", 40.0), ("off", 20.0)])
async def test_everyone_else_is_served_while_a_server_is_attacked(
    access: str, seconds: float, tmp_path: Path
) -> None:
    # The long form, on a machine that is known, has the bound itself. Here it tells a server that
    # makes others wait from one on a slow disk.
    outcome = await besiege(tmp_path, seconds, access, patience=8.0)
    assert not list(outcome.broken()), outcome.report()


async def test_everyone_else_is_served_while_descriptors_and_the_disk_are_used_up(
    tmp_path: Path,
) -> None:
    endured = await exhaust(tmp_path, 12.0)
    assert not list(endured.broken()), endured.report()
