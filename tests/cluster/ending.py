"""Ending early, without leaving anything behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_LOOK_EVERY_S: Final = 0.2

T = TypeVar("T")


async def until_told(work: Coroutine[Any, Any, T]) -> T:
    """Do something; it is cancelled by Ctrl-C and SIGTERM, and when whoever started this is gone.

    Only once: being told again must not keep it from cleaning up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, cancel_once, task)
    _watch_parent(task, os.getppid())
    return await task


def _watch_parent(task: asyncio.Task[Any], parent: int) -> None:
    """`make` that is killed with SIGKILL tells nobody."""
    if os.getppid() != parent:
        cancel_once(task)
    elif not task.done():
        task.get_loop().call_later(_LOOK_EVERY_S, _watch_parent, task, parent)


def cancel_once(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():
        task.cancel()
