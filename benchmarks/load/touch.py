"""Live queries as clients use them: a profile, templates, and waits from cursor to cursor."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.load.http import HOST, Connection, create_stream, request
from headwater.core.live.keys import to_hex

_CURSOR = re.compile(rb'"cursor":\s*"([^"]+)"')
_TOUCHED = re.compile(rb'"(?:touched|stale)":\s*true')
_WAIT_MS = 120_000
_BACK_OFF_SECONDS = 0.01
_POLL_SECONDS = 0.05
T = TypeVar("T")
BUSY = frozenset({408, 429, 503})
"""Statuses with which a server asks for a retry."""


class Trouble:
    """Collects errors from everyone in a job; the first ends the job."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.retries = 0

    def count(self) -> None:
        """Count a retry."""
        self.retries += 1

    def report(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(RuntimeError(reason))

    async def sleep(self, seconds: float) -> None:
        await self.beside(asyncio.sleep(seconds))

    async def beside(self, work: Awaitable[T]) -> T:
        """Wait for some work, unless there is trouble before it is done."""
        task = asyncio.ensure_future(work)
        either: list[asyncio.Future[Any]] = [task, self.future]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self.future.done():
            task.cancel()
            self.future.result()
        return await task


class Asker(Connection):
    """A connection that keeps the last response, including its head."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = b""
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        super().data_received(data)

    def _finish(self, status: int) -> None:
        self.answer, self._received = self._received, b""
        super()._finish(status)

    async def tell(self, method: str, path: str, value: object = None) -> dict[str, Any]:
        """Send a request that must succeed, and parse its answer; empty means retry."""
        body = b"" if value is None else json.dumps(value).encode()
        status = await self.ask(request(method, path, body))
        if status in BUSY:
            return {}
        if status != 200:
            raise RuntimeError(f"{method} {path} was answered {status}")
        answer: dict[str, Any] = json.loads(self.answer.partition(b"\r\n\r\n")[2])
        return answer


async def ask_at(port: int) -> Asker:
    _, asker = await asyncio.get_running_loop().create_connection(Asker, HOST, port)
    return asker


async def create_live(
    asker: Asker,
    path: str,
    templates: Sequence[tuple[str, str]],
    settings: Mapping[str, object] | None = None,
) -> str:
    """Create a stream that queries can wait on, with single-field templates; returns its cursor."""
    await create_stream(asker, path)
    profile = {"kind": "state-protocol", "touch": {"enabled": True, **(settings or {})}}
    envelope = {"apiVersion": "durable.streams/profile/v1", "profile": profile}
    await asker.tell("POST", f"{path}/_profile", envelope)
    shapes = [
        {"entity": entity, "fields": [{"name": field, "encoding": "string"}]}
        for entity, field in templates
    ]
    activated = await asker.tell("POST", f"{path}/touch/templates/activate", {"templates": shapes})
    if activated["denied"]:
        raise RuntimeError(f"templates were denied: {activated['denied'][0]}")
    return str((await asker.tell("GET", f"{path}/touch/meta"))["cursor"])


async def await_waiters(asker: Asker, path: str, count: int) -> None:
    """Wait until the server reports that many waiters."""
    waiting = 0
    while waiting < count:
        await asyncio.sleep(_POLL_SECONDS)
        waiting = (await asker.tell("GET", f"{path}/touch/meta")).get("activeWaiters", 0)


class Waiter:
    """Waits on its keys and, whatever comes, waits again from the cursor it got."""

    __slots__ = ("_asker", "_cursor", "_head", "_number", "_path", "_tail", "_touched", "_trouble")

    def __init__(
        self,
        asker: Asker,
        path: str,
        number: int,
        keys: Sequence[int],
        templates: Sequence[int],
        touched: Callable[[int], None],
        trouble: Trouble,
    ) -> None:
        self._asker = asker
        self._number = number
        self._touched = touched
        self._trouble = trouble
        self._path = f"{path}/touch/wait"
        names = json.dumps([to_hex(key) for key in keys])
        used = json.dumps([to_hex(template) for template in templates])
        self._cursor = b""
        self._head = b'{"cursor":"'
        self._tail = (
            f'","timeoutMs":{_WAIT_MS},"keys":{names},"templateIdsUsed":{used}}}'
        ).encode()

    def wait(self, cursor: bytes) -> None:
        self._cursor = cursor
        self._asker.send(
            request("POST", self._path, self._head + cursor + self._tail), self._answered
        )

    def _answered(self, status: int) -> None:
        answer = self._asker.answer
        if status in BUSY:
            self._trouble.count()
            asyncio.get_running_loop().call_later(_BACK_OFF_SECONDS, self.wait, self._cursor)
            return
        found = _CURSOR.search(answer)
        if status != 200 or found is None:
            self._trouble.report(
                f"a wait was answered {status}" if status else "a wait was cut off"
            )
            return
        if _TOUCHED.search(answer):
            self._touched(self._number)
        self.wait(found[1])
