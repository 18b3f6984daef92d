"""The loop of `headwater consume`: take messages, have them handled, shut down cleanly.

The first SIGINT or SIGTERM drains: nothing more is started, messages that were fetched but not
started go back uncounted, and those that were started are finished. A second one ends the running
commands, and returns their messages uncounted as well. A third one ends the process at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.cli.consume.handlers import Handled, Handler, Verdict
from headwater.cli.exits import CliError
from headwater.cli.output import output_closed
from headwater.cli.shell import say
from headwater.client import AsyncConsumer, AsyncMessage, HeadwaterError, StaleReceipt

Report = Callable[[AsyncMessage, Handled | None], None]
"""Called for every message; None instead of an outcome if another member has got it meanwhile."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Tally:
    """The totals of a run."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    lost: int = 0
    signal: signal.Signals | None = None

    @property
    def failed(self) -> int:
        return self.counts[Verdict.NACK] + self.counts[Verdict.REJECT] + self.lost

    @property
    def total(self) -> int:
        return self.counts.total() + self.lost


class Worker:
    def __init__(
        self,
        consumer: AsyncConsumer,
        handler: Handler,
        report: Report,
        *,
        concurrency: int,
        limit: int | None,
        nack_delay_s: float,
    ) -> None:
        self._consumer = consumer
        self._handler = handler
        self._report = report
        self._room = asyncio.Semaphore(concurrency)
        self._limit = limit
        self._nack_delay_s = nack_delay_s
        self._tally = Tally()
        self._failure: HeadwaterError | CliError | OSError | None = None
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Tally:
        """Work until there is nothing more to do, or until told to stop."""
        watcher = asyncio.create_task(self._watch_output())
        with self._heeding_signals():
            try:
                async with self._consumer:
                    await self._take_messages()
            except HeadwaterError as error:
                self._fail(error)
            while self._tasks:
                await asyncio.gather(*self._tasks)
                # From Python 3.14 on, that does not wait for the callbacks of tasks that are done.
                await asyncio.sleep(0)
        watcher.cancel()
        if self._failure is not None:
            raise self._failure
        return self._tally

    # --- Working ---------------------------------------------------------------------------------

    async def _take_messages(self) -> None:
        taken = 0
        while taken != self._limit:
            # The consumer counts the messages we hold. One lost to another member is no longer
            # ours, but its command may still run.
            await self._room.acquire()
            message = None if self._stopping else await anext(self._consumer, None)
            if message is None:
                return
            taken += 1
            self._begin(self._work(message))

    async def _work(self, message: AsyncMessage) -> None:
        try:
            async with message:
                handled = await self._handled(message)
                await self._settle(message, handled)
            self._tally.counts[handled.verdict] += 1
            self._report(message, handled)
        except StaleReceipt:
            self._tally.lost += 1
            self._report(message, None)
        except (HeadwaterError, OSError) as error:
            self._fail(error)
        finally:
            self._room.release()

    async def _handled(self, message: AsyncMessage) -> Handled:
        if self._stopping:
            return Handled(Verdict.RETURN)
        try:
            return await self._handler.handle(message)
        except (OSError, CliError) as error:
            self._fail(error)
            return Handled(Verdict.RETURN)

    async def _settle(self, message: AsyncMessage, handled: Handled) -> None:
        match handled.verdict:
            case Verdict.ACK:
                await message.ack()
            case Verdict.NACK:
                await message.nack(self._nack_delay_s)
            case Verdict.REJECT:
                await message.reject()
            case Verdict.RETURN:
                await message.nack(count=False)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Ending ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._begin(self._consumer.aclose())

    def _fail(self, error: HeadwaterError | CliError | OSError) -> None:
        self._failure = self._failure or error
        self._stop()

    async def _watch_output(self) -> None:
        await output_closed()
        self._fail(BrokenPipeError())

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal, each)
        try:
            yield
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    def _on_signal(self, received: signal.Signals) -> None:
        if self._tally.signal is None:
            self._tally.signal = received
            if self._tasks and sys.stderr.isatty():
                say("finishing what has started; repeat to stop it")
            self._stop()
            return
        self._handler.abort()
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
