"""A short ordeal: three nodes on three PostgreSQL, each killed, paused and cut off once or twice.

`make nemesis SEED=… MINUTES=…` goes on for longer.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.nemesis import ordeal

SECONDS = 30
SEED = 16


@pytest.mark.alone
@pytest.mark.crash
@pytest.mark.slow
def test_no_promise_is_broken() -> None:
    history, broken = asyncio.run(ordeal(SEED, SECONDS, print))
    assert broken == []
    assert history.acknowledged > 300, "too little happened to say anything"
    assert len(history.delivered) > 10
    assert any(seen.waited for seen in history.seen)
    assert any(len(sent.messages) > 1 for sent in history.sent)
