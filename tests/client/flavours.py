"""The blocking client behind the async client's surface, so that one test covers both.

Every call of the blocking client is made on a worker thread, and what it returns is wrapped in the
same way. Where the async flavour has a coroutine, the wrapper has one too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, cast

from headwater import client as api
from headwater.client import AsyncHeadwater, Headwater

COUNTERPARTS: Final[dict[type, type]] = {
    api.Headwater: api.AsyncHeadwater,
    api.Stream: api.AsyncStream,
    api.Reader: api.AsyncReader,
    api.Items: api.AsyncItems,
    api.Records: api.AsyncRecords,
    api.Producer: api.AsyncProducer,
    api.Group: api.AsyncGroup,
    api.Consumer: api.AsyncConsumer,
    api.LiveStream: api.AsyncLiveStream,
    api.LiveQuery: api.AsyncLiveQuery,
    api.Message: api.AsyncMessage,
    api.Transaction: api.AsyncTransaction,
    api.Snapshots: api.AsyncSnapshots,
    api.Subscription: api.AsyncSubscription,
    api.Claim: api.AsyncClaim,
    api.Delivery: asyncio.Future,
}
RENAMED: Final = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
_END: Final = object()


def in_threads(client: Headwater) -> AsyncHeadwater:
    """The blocking client, to be used as if it were the async one."""
    return cast(AsyncHeadwater, Threaded(client))


class Threaded:
    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        counterpart = getattr(COUNTERPARTS[type(self._target)], name)
        attribute = getattr(self._target, RENAMED.get(name, name))
        if inspect.iscoroutinefunction(counterpart):
            return _as_coroutine(attribute)
        if callable(counterpart):
            return lambda *args, **kwargs: _wrapped(attribute(*map(_bare, args), **_named(kwargs)))
        return _wrapped(attribute)

    async def __aenter__(self) -> Threaded:
        await asyncio.to_thread(self._target.__enter__)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await asyncio.to_thread(self._target.__exit__, *exc)

    def __aiter__(self) -> AsyncIterator[Any]:
        return cast(AsyncIterator[Any], self)

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(next, self._target, _END)
        if item is _END:
            raise StopAsyncIteration
        return _wrapped(item)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.to_thread(self._target.result).__await__()


def _as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return _wrapped(await asyncio.to_thread(function, *map(_bare, args), **_named(kwargs)))

    return call


def _wrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrapped(each) for each in value]
    return Threaded(value) if type(value) in COUNTERPARTS else value


def _bare(argument: Any) -> Any:
    """What the blocking client is given is its own."""
    if isinstance(argument, list):
        return [_bare(each) for each in argument]
    return argument._target if isinstance(argument, Threaded) else argument


def _named(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: _bare(argument) for name, argument in arguments.items()}
