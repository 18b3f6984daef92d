"""A short ordeal: three nodes on three PostgreSQL, each killed, paused and cut off once or twice.

`make nemesis SEED=… MINUTES=…` goes on for longer.
"""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.cluster.ordeal import ordeal
from tests.support import seeds

SECONDS = 30
SEED = seeds.one(16)


# httpx leaves a connection to the collector if a request is given up while it connects.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.late
@pytest.mark.crash
@pytest.mark.slow
def test_no_promise_is_broken() -> None:
    history, broken = asyncio.run(ordeal(SEED, SECONDS, print))
    # Here and now, not in some other test.
    gc.collect()
    assert broken == []
    assert history.acknowledged > 300, "too little happened to say anything"
    assert len(history.delivered) > 10
    assert any(seen.waited for seen in history.seen)
    assert any(len(sent.messages) > 1 for sent in history.sent)
    assert all(len(edited.states) > 2 for edited in history.edited.values())
