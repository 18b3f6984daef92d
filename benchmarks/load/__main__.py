"""Runs one job: JSON in, JSON out."""

import gc
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from benchmarks.load import jobs
from benchmarks.load.append import append
from benchmarks.load.catchup import catch_up
from benchmarks.load.change_flood import change_flood
from benchmarks.load.fanout import fan_out
from benchmarks.load.first_byte import first_byte
from benchmarks.load.live import live_traffic
from benchmarks.load.many_waiters import many_waiters
from benchmarks.load.measure import Result
from benchmarks.load.paced_changes import paced_changes
from benchmarks.load.paced_work import paced_work
from benchmarks.load.prepare import create_streams, fill_stream
from benchmarks.load.replay import replay
from benchmarks.load.work import fill_broker, work

_WORK: dict[type[jobs.Job], Callable[[Any], Awaitable[Result]]] = {
    jobs.Append: append,
    jobs.CatchUp: catch_up,
    jobs.ChangeFlood: change_flood,
    jobs.CreateStreams: create_streams,
    jobs.Fanout: fan_out,
    jobs.FillBroker: fill_broker,
    jobs.FillStream: fill_stream,
    jobs.FirstByte: first_byte,
    jobs.LiveTraffic: live_traffic,
    jobs.ManyWaiters: many_waiters,
    jobs.PacedChanges: paced_changes,
    jobs.PacedWork: paced_work,
    jobs.Replay: replay,
    jobs.Work: work,
}


async def _run(description: dict[str, Any]) -> Result:
    by_name = {kind.__name__: kind for kind in _WORK}
    kind = by_name[description.pop("kind")]
    return await _WORK[kind](kind(**description))


def main() -> None:
    # A run is short and bounded, and a collection during it would show up as server latency.
    gc.disable()
    result = uvloop.run(_run(json.load(sys.stdin)))
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
