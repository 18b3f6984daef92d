"""Headwater's client, running a job."""

import json

from benchmarks.clients.jobs import ClientJob
from benchmarks.clients.watch import Watch
from benchmarks.load.measure import Result
from headwater.client import AsyncHeadwater, Headwater

# Headwater's client already requests no compression from a server on the loopback interface; the
# header says so for both clients anyway.
_HEADERS = {"Accept-Encoding": "identity"}


def run_blocking(job: ClientJob, watch: Watch) -> Result:
    with Headwater(job.server_url, headers=_HEADERS) as client:
        for _ in client.stream(job.warmup_path).read().messages():
            pass
        stream = client.stream(job.path)
        watch.ready()
        if job.kind == "read":
            watch.count(stream.read().messages())
        elif job.kind == "follow":
            with stream.follow(live=job.live) as reader:
                watch.count(reader.messages())
        else:
            message = json.loads(job.message)
            with stream.producer() as producer:
                for _ in range(job.messages):
                    producer.append(message)
        return watch.stop()


async def run_async(job: ClientJob, watch: Watch) -> Result:
    async with AsyncHeadwater(job.server_url, headers=_HEADERS) as client:
        async for _ in client.stream(job.warmup_path).read().messages():
            pass
        stream = client.stream(job.path)
        watch.ready()
        if job.kind == "read":
            await watch.acount(stream.read().messages())
        elif job.kind == "follow":
            async with stream.follow(live=job.live) as reader:
                await watch.acount(reader.messages())
        else:
            message = json.loads(job.message)
            async with stream.producer() as producer:
                for _ in range(job.messages):
                    await producer.append(message)
        return watch.stop()
