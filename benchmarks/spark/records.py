"""The messages that are read: records that differ, so that no reader profits from repetition."""

import random
import time

import httpx

from benchmarks.errors import LoadFailed
from benchmarks.spark.job import SparkJob

STREAM = "spark-records"
SCHEMA = "id long, kind string, user string, total double, paid boolean, note string"
_JSON = {"Content-Type": "application/json"}
_SEALED_SECONDS_MAX = 120.0


def record(number: int, size: int, chance: random.Random) -> bytes:
    """A JSON object of about ``size`` bytes."""
    head = (
        f'{{"id":{number},"kind":"order.updated","user":"u-{chance.randrange(99_999)}",'
        f'"tags":["new","gift"],"total":{chance.randrange(99_999) / 100},"paid":true,"note":"'
    )
    return f'{head}{chance.randbytes((size - len(head) - 2) // 2).hex()}"}}'.encode()


def fill(job: SparkJob) -> None:
    """Append the records and wait until all of them are in history files."""
    chance = random.Random(1)
    url = f"{job.endpoint}/v1/stream/{STREAM}"
    with httpx.Client(timeout=60) as http:
        http.put(url, headers=_JSON).raise_for_status()
        for first in range(0, job.messages, job.batch_messages):
            numbers = range(first, min(first + job.batch_messages, job.messages))
            body = b",".join(record(number, job.message_bytes, chance) for number in numbers)
            http.post(url, content=b"[%b]" % body, headers=_JSON).raise_for_status()
        deadline = time.monotonic() + _SEALED_SECONDS_MAX
        while any(one["file"] is None for one in _ranges(http, url)):
            if time.monotonic() > deadline:
                raise LoadFailed("the server did not seal what was appended")
            time.sleep(0.2)


def _ranges(http: httpx.Client, url: str) -> list[dict[str, object]]:
    answer = http.get(f"{url}/_segments", params={"max_bytes": str(2**40)})
    found: list[dict[str, object]] = answer.raise_for_status().json()["ranges"]
    return found
