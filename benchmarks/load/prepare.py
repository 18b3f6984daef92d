"""Filling a server before it is measured."""

import asyncio
import time
from collections.abc import Iterator

from benchmarks.load.http import connect, json_message, json_record, request, stream_path
from benchmarks.load.jobs import CreateStreams, FillStream
from benchmarks.load.measure import Result


async def create_streams(job: CreateStreams) -> Result:
    started = time.monotonic()
    requests = (request("PUT", stream_path(f"{job.prefix}{index}")) for index in range(job.streams))
    await _send_all(job.port, requests, job.connections)
    return {"streams": job.streams, "seconds": time.monotonic() - started}


async def fill_stream(job: FillStream) -> Result:
    started = time.monotonic()
    path = stream_path(job.path)
    await _send_all(job.port, iter([request("PUT", path)]), connections=1)
    await _send_all(job.port, _batches(job, path), job.connections)
    return {"messages": job.messages, "seconds": time.monotonic() - started}


async def _send_all(port: int, requests: Iterator[bytes], connections: int) -> None:
    """Send each request once; all connections take from the same iterator."""

    async def send_some() -> None:
        connection = await connect(port)
        for data in requests:
            if not connection.usable:
                connection = await connect(port)
            status = await connection.ask(data)
            if status not in {200, 201, 204}:
                raise RuntimeError(f"{data[:60]!r} was answered {status}")
        connection.close()

    await asyncio.gather(*(send_some() for _ in range(connections)))


def _batches(job: FillStream, path: str) -> Iterator[bytes]:
    message = (json_record if job.record else json_message)(job.message_bytes)
    full, rest = divmod(job.messages, job.batch_messages)
    whole_batch = _batch(path, message, job.batch_messages)
    for _ in range(full):
        yield whole_batch
    if rest:
        yield _batch(path, message, rest)


def _batch(path: str, message: bytes, count: int) -> bytes:
    return request("POST", path, b"[" + b",".join([message] * count) + b"]")
