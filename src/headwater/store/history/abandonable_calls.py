"""Calls that may never return, made so that nobody has to wait for them.

Each runs on its own thread, which the process does not wait for at exit. The caller waits for its
outcome, or for the end of all calls, whichever comes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from headwater.core.errors import HistoryUnavailable

R = TypeVar("R")


class Calls:
    def __init__(self) -> None:
        self._under_way: set[Future[Any]] = set()
        self._ended = False
        self._lock = threading.Lock()

    def make(self, call: Callable[[], R]) -> R:
        outcome: Future[R] = Future()
        with self._lock:
            if self._ended:
                raise _given_up()
            self._under_way.add(outcome)
        try:
            threading.Thread(target=_carry_out, args=(call, outcome), daemon=True).start()
            return outcome.result()
        finally:
            self._under_way.discard(outcome)

    def end(self) -> None:
        """Abandon those in progress, and refuse all others from now on."""
        with self._lock:
            self._ended = True
            for outcome in list(self._under_way):
                with suppress(InvalidStateError):
                    outcome.set_exception(_given_up())


def _carry_out(call: Callable[[], R], outcome: Future[R]) -> None:
    try:
        result = call()
    except BaseException as error:
        with suppress(InvalidStateError):
            outcome.set_exception(error)
    else:
        with suppress(InvalidStateError):
            outcome.set_result(result)


def _given_up() -> HistoryUnavailable:
    return HistoryUnavailable("the server is stopping")
