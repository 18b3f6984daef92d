"""The client `durable-streams` from PyPI, running a job.

It batches concurrent appends: while one request is in flight, all further calls of `append` gather
for the next one. Each call returns when its message is stored. So its best way to append is from
many threads or tasks at once. The numbers of both are the fastest of 1, 8, 32, 64, 128 and 256
threads and of 100, 1,000, 5,000 and 10,000 tasks.
"""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
from durable_streams import (  # type: ignore[import-not-found]
    AsyncDurableStream,
    DurableStream,
    astream,
    stream,
)

from benchmarks.clients.jobs import ClientJob
from benchmarks.clients.watch import Watch
from benchmarks.load.measure import Result

_THREADS = 128
_TASKS = 1_000
_HEADERS = {"Accept-Encoding": "identity"}
_JSON = "application/json"
_START = "-1"
_TIMEOUT_SECONDS = 30.0  # its own default


def run_blocking(job: ClientJob, watch: Watch) -> Result:
    url = job.url(job.path)
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as http:
        with stream(
            job.url(job.warmup_path), offset=_START, live=False, headers=_HEADERS, client=http
        ) as response:
            for _ in response.iter_json():
                pass
        watch.ready()
        if job.kind == "produce":
            handle = DurableStream(url, content_type=_JSON, headers=_HEADERS, client=http)
            _append_from_threads(handle, job)
        else:
            live = job.live if job.kind == "follow" else False
            with stream(url, offset=_START, live=live, headers=_HEADERS, client=http) as response:
                watch.count(response.iter_json())
        return watch.stop()


async def run_async(job: ClientJob, watch: Watch) -> Result:
    url = job.url(job.path)
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as http:
        async with astream(
            job.url(job.warmup_path), offset=_START, live=False, headers=_HEADERS, client=http
        ) as response:
            async for _ in response.iter_json():
                pass
        watch.ready()
        if job.kind == "produce":
            handle = AsyncDurableStream(url, content_type=_JSON, headers=_HEADERS, client=http)
            await _append_from_tasks(handle, job)
        else:
            live = job.live if job.kind == "follow" else False
            async with astream(
                url, offset=_START, live=live, headers=_HEADERS, client=http
            ) as response:
                await watch.acount(response.iter_json())
        return watch.stop()


def _append_from_threads(handle: DurableStream, job: ClientJob) -> None:
    message = json.loads(job.message)

    def append(count: int) -> None:
        for _ in range(count):
            handle.append(message)

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(append, _shares(job.messages, _THREADS)))


async def _append_from_tasks(handle: AsyncDurableStream, job: ClientJob) -> None:
    message = json.loads(job.message)

    async def append(count: int) -> None:
        for _ in range(count):
            await handle.append(message)

    await asyncio.gather(*(append(count) for count in _shares(job.messages, _TASKS)))


def _shares(total: int, parts: int) -> list[int]:
    share, rest = divmod(total, parts)
    return [share + (part < rest) for part in range(parts)]
