"""A bound for work that has none of its own: socket timeouts start over with every byte."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """Run some work, or raise `TimeoutError`. The work is then left to end with the process."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="headwater-deadline", daemon=True).start()
    return outcome.result(min(seconds, threading.TIMEOUT_MAX))
