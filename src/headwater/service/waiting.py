"""Waiting for what others may wait for too."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


async def shared(future: asyncio.Future[T]) -> T:
    """Wait for a future that goes on if this caller is cancelled.

    Unlike `asyncio.shield`, which from Python 3.14 on logs an error that comes after that: whoever
    else waits gets it.
    """
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        future.add_done_callback(_notice)
        raise
    return future.result()


def _notice(done: asyncio.Future[Any]) -> None:
    """Perhaps nobody is left to get the error."""
    if not done.cancelled():
        done.exception()
