"""What lets blocking code use the async client: an event loop on a thread of its own.

The blocking classes are thin: each holds its async counterpart and a `Portal`, and
sends coroutines through it. The calling thread waits, so Ctrl-C reaches it at once; the coroutine
is then cancelled and awaited before the interrupt goes on its way.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

from headwater.client.protocol.streams import Receipt

T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class _Lookups(ThreadPoolExecutor):
    """Where the loop looks up names. Nobody waits for that at exit: it can take minutes."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        outcome: Future[T] = Future()

        def run() -> None:
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    outcome.set_exception(error)

        threading.Thread(target=run, name="headwater-lookup", daemon=True).start()
        return outcome


class Portal:
    """A running event loop. It ends with `close`, or when nobody refers to the portal any more."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_Lookups())
        # The thread knows the loop but not the portal, so that the portal can be collected.
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="headwater-client", daemon=True
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop_loop, self._loop, self._thread)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("the blocking client cannot be used on its own event loop thread")
        if not self._finalizer.alive:
            coroutine.close()
            raise RuntimeError("the client is closed")
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []
        try:
            self._loop.call_soon_threadsafe(_start, self._loop, coroutine, outcome, tasks)
            return outcome.result()
        except BaseException:
            if not outcome.done():
                # We were interrupted, not the coroutine. Leave nothing running behind our back.
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                outcome.exception()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then end the loop and its thread. Once is enough."""
        if not self._finalizer.alive:
            coroutine.close()
            return
        try:
            self.call(coroutine)
        finally:
            self._finalizer()


def _start(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T],
    outcome: Future[T],
    tasks: list[asyncio.Task[T]],
) -> None:
    task = loop.create_task(coroutine)
    tasks.append(task)
    task.add_done_callback(lambda done: _hand_over(done, outcome))


def _hand_over(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if task.cancelled():
        outcome.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await loop.shutdown_asyncgens()
        loop.stop()

    def begin() -> None:
        loop.create_task(cancel_all())

    loop.call_soon_threadsafe(begin)
    # A collection can be triggered on the loop's own thread, which cannot wait for itself.
    if threading.current_thread() is not thread:
        thread.join()
        loop.close()


class Blocking(Generic[A]):
    """What every blocking class has: its async counterpart, and the way to its event loop."""

    def __init__(self, portal: Portal, wrapped: A) -> None:
        self._portal = portal
        self._async = wrapped


class BlockingContext(Blocking[C]):
    def __enter__(self) -> Self:
        self._portal.call(self._async.__aenter__())
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: Any) -> None:
        self._portal.call(self._async.__aexit__(exc_type, *_))


class Delivery:
    """A message on its way: what `Producer.append` returns."""

    __slots__ = ("_future", "_portal")

    def __init__(self, portal: Portal, future: asyncio.Future[Receipt]) -> None:
        self._portal = portal
        self._future = future

    def done(self) -> bool:
        """Whether the message is stored or has failed."""
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait until the message is stored; raise if it failed or took longer than that."""

        async def wait() -> Receipt:
            async with asyncio.timeout(timeout_s):
                # A shield would log an error that comes after the timeout.
                await asyncio.wait([self._future])
            return self._future.result()

        return self._portal.call(wait())

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Call back when done, on the client's own thread: keep it short, and do not block."""

        def on_loop() -> None:
            self._future.add_done_callback(lambda _: callback(self))

        self._future.get_loop().call_soon_threadsafe(on_loop)
