"""Every attack at once for a minute; `make attack MINUTES=10` is the long form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.attack.siege import besiege


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("access, seconds", [("on", 40.0), ("off", 20.0)])
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc; needs all of 127.0.0.0/8")
async def test_everyone_else_is_served_while_a_server_is_attacked(
    access: str, seconds: float, tmp_path: Path
) -> None:
    # The long form, on a machine that is known, has the bound itself.
    outcome = await besiege(tmp_path, seconds, access, patience=2.0)
    assert not list(outcome.broken()), outcome.report()
