"""An hour of figures: what a point holds, and that there are never more than an hour's worth."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from headwater.core.decisions import Create
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.limits import Limits
from headwater.http.messages import Request, Response
from headwater.http.observe.figures import POINTS_MAX, Figures, Mean
from headwater.http.wire.server import Server
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.http.client import Client, eventually


def shown(figures: Figures, query: bytes = b"") -> dict[str, Any]:
    answer = figures.handle(Request("GET", b"/v1/figures", query, {}))
    assert isinstance(answer, Response)
    assert isinstance(answer.body, bytes)
    return cast(dict[str, Any], json.loads(answer.body))


async def test_a_point_has_what_happened_since_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms, now_s = [1_000], [10.0]
    monkeypatch.setattr("headwater.http.observe.figures.monotonic", lambda: now_s[0])
    log = await Log.start(MemoryEngine(), Limits())
    groups = await Groups.start(log)
    figures = Figures(lambda: now_ms[0])
    assert shown(figures) == {"step_ms": 5000, "times": [], "figures": {}}
    figures.start(log, Feeds(log), groups, Server(lambda request: Response(200, []), Limits()))
    await log.create(Create("s", "application/json", body=b"[1,2,3,4]"))
    now_s[0] += 2
    figures.take()
    now_ms[0], now_s[0] = 2_000, now_s[0] + 5
    figures.take()
    found = shown(figures)
    assert found["times"] == [1_000, 2_000]
    assert found["figures"]["messages_per_s"] == [2, 0]
    assert found["figures"]["commit_ms"][1] is None
    assert shown(figures, b"since=1000")["figures"]["messages_per_s"] == [0]
    assert shown(figures, b"since=2000")["times"] == []
    for _ in range(POINTS_MAX + 5):
        figures.take()
    full = shown(figures)
    assert {len(full["times"]), *map(len, full["figures"].values())} == {POINTS_MAX}
    figures.stop()
    groups.stop()
    await log.stop()


def test_a_mean_is_of_what_is_new() -> None:
    seen = Histogram(SECONDS)
    seen.observe(100.0)
    mean = Mean(seen, 1000)
    seen.observe(0.25)
    seen.observe(0.75)
    assert mean(5) == 500
    assert str(mean(5)) == "nan"


async def test_a_figure_that_fails_is_seen_and_the_timer_goes_on() -> None:
    figures = Figures(lambda: 0)
    figures._sources = {"broken": lambda passed_s: 1 / 0}
    figures._tick()
    assert figures.watch.is_failing
    assert figures._timer is not None
    figures.stop()


def test_a_server_takes_points_by_itself(client: Client) -> None:
    eventually(lambda: bool(client.json("/v1/figures")["times"]))
    found = client.json("/v1/figures")
    assert all(len(values) == len(found["times"]) for values in found["figures"].values())
    assert found["figures"]["connections"][-1] >= 0
    assert client.send("GET", "/v1/figures?since=x").status == 400
