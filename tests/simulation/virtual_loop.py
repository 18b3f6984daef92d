"""An event loop without time and without threads, so that a run can be repeated exactly.

- **Time** stands still while there is something to do and jumps to the next timer when there is
  not. A run takes as long as the machine needs to compute it.
- **Threads** are only pretended. Work for an executor runs on the loop: after a random delay it is
  done, after another one its result arrives, and in between the world moves on. That is what real
  threads do to a program, except that here the delays come out of the seed.
- The **commit thread** is replaced by `VirtualThread`, which does its jobs one after the other in
  the same manner (`take_over`).

Nothing else differs from a real loop: callbacks run in the order in which they were scheduled.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

from headwater.service.writer import Writer

Job = Callable[[], None]

# Far more turns of the loop than any run needs.
_TURNS_MAX: Final = 2_000_000


class _Jump(selectors.SelectSelector):
    """Instead of waiting for input, which never comes, lets the time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns_left = _TURNS_MAX

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everyone waits for something that will never happen")
        self._turns_left -= 1
        if self._turns_left == 0:
            raise RuntimeError("it goes round in circles")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, random: Random) -> None:
        self._jump = _Jump()
        self._random = random
        self._last_message_at = 0.0
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s

    def delay_s(self, longest_ms: float) -> float:
        """Mostly short, sometimes long, as delays are."""
        return longest_ms / 1000 * self._random.random() ** 3

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result, error = func(*arguments), None
            except Exception as failure:
                result, error = None, failure
            self.call_later(self.delay_s(2), deliver, result, error)

        def deliver(result: object, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.delay_s(2), work)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *arguments: Any, context: Any = None
    ) -> asyncio.Handle:
        """A message from the commit thread: it takes a while, but none overtakes another."""
        self._last_message_at = max(self._last_message_at, self.time() + self.delay_s(1))
        return self.call_at(self._last_message_at, callback, *arguments, context=context)


class VirtualThread:
    """Takes the place of a writer's job queue and of the thread behind it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._free_at = 0.0
        self._dead = False

    def put(self, job: Job | None) -> None:
        if job is None or self._dead:
            return
        self._free_at = max(self._free_at, self._loop.time()) + self._loop.delay_s(8)
        self._loop.call_at(self._free_at, self._do, job)

    def get(self) -> None:
        """For the real thread, should it ask once more: there is nothing for it to do."""

    def die(self) -> None:
        """What was not done by now never will be."""
        self._dead = True

    def _do(self, job: Job) -> None:
        if not self._dead:
            job()


def take_over(writer: Writer) -> VirtualThread:
    """Send the writer's own thread home and do its work on the loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    thread, jobs = VirtualThread(loop), writer.thread._jobs
    writer.thread._jobs = cast(Any, thread)
    jobs.put(None)
    writer.thread._thread.join()
    return thread
