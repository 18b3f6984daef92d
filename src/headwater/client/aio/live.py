"""Live queries: results that are run again when they may have become stale."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Generic, Self, TypeVar, overload

from headwater.client.aio.sender import Sender
from headwater.client.errors import HeadwaterError, LiveNotEnabled
from headwater.client.live_keys import Keyset, Template, keyset
from headwater.client.protocol.live import (
    NOW,
    Activation,
    LiveMeta,
    WaitResult,
    activate_request,
    activation,
    is_answer_to,
    live_meta,
    meta_request,
    profile,
    profile_request,
    profile_url,
    wait_request,
    wait_result,
)
from headwater.client.protocol.retry import Retries
from headwater.client.protocol.streams import Request, unexpected
from headwater.core.live.encodings import Encoding
from headwater.core.live.profile import Profile

T = TypeVar("T")

WAIT_S: Final = 25.0


class AsyncLiveStream:
    """The live side of a stream: queries wait for changes that are appended to it.

        todos = client.stream("orders")
        await todos.ensure(content_type="application/json")
        live = todos.live()
        await live.set_profile({"kind": "state-protocol", "touch": {"enabled": True}})

        async for count in live.query(lambda: 0, entity="todos", where={"tenant": "t1"}):
            print(count)
            break

    Creating one sends nothing.
    """

    def __init__(self, sender: Sender, url: str) -> None:
        self._sender = sender
        self._url = url

    # --- Queries ---------------------------------------------------------------------------------

    @overload
    def query(
        self,
        run: Callable[[], Awaitable[T]],
        *,
        entity: str,
        where: Mapping[str, Any] | None = None,
        project: Iterable[str] | None = None,
        membership_only: bool = False,
        encodings: Mapping[str, Encoding] | None = None,
        ttl_s: float | None = None,
        wait_s: float = WAIT_S,
    ) -> AsyncLiveQuery[T]: ...
    @overload
    def query(
        self,
        run: Callable[[], T],
        *,
        entity: str,
        where: Mapping[str, Any] | None = None,
        project: Iterable[str] | None = None,
        membership_only: bool = False,
        encodings: Mapping[str, Encoding] | None = None,
        ttl_s: float | None = None,
        wait_s: float = WAIT_S,
    ) -> AsyncLiveQuery[T]: ...
    def query(
        self,
        run: Callable[[], Any],
        *,
        entity: str,
        where: Mapping[str, Any] | None = None,
        project: Iterable[str] | None = None,
        membership_only: bool = False,
        encodings: Mapping[str, Encoding] | None = None,
        ttl_s: float | None = None,
        wait_s: float = WAIT_S,
    ) -> AsyncLiveQuery[Any]:
        """Run a query, and again whenever its result may have changed.

        What it waits on follows from the shape of the query. No change is missed, but the query may
        sometimes run unnecessarily.

        Args:
            run: the query, a function (plain or async) that asks your database.
            entity: the table, as in the `type` of its change records.
            where: the fields that the query compares for equality, with their values.
            project: the other fields that the result depends on, including the sort order. None
                means that it may depend on all of them.
            membership_only: the result depends only on which rows match, as a count does.
            encodings: for fields whose encoding is not what their value's type says.
            ttl_s: how long the server follows an unused shape; its default if None.
            wait_s: how long one request waits. Keep it shorter than proxies in between allow.
        """
        if wait_s <= 0:
            raise ValueError("wait_s must be more than 0")
        found = keyset(
            entity, where, project=project, membership_only=membership_only, encodings=encodings
        )
        wait_request(self._url, {}, cursor=NOW, timeout_s=wait_s)  # raises if it is too long
        return AsyncLiveQuery(self._sender, self._url, run, found, ttl_s=ttl_s, wait_s=wait_s)

    # --- Single requests -------------------------------------------------------------------------

    async def profile(self) -> Profile:
        """What the stream is used for, with all settings."""
        answer = await self._sender.perform(Request("GET", profile_url(self._url)))
        return profile(answer.response)

    async def set_profile(self, new: Profile | Mapping[str, Any]) -> Profile:
        """Change what the stream is used for, and return all settings.

        Args:
            new: `StateProtocol(TouchSettings(enabled=True))`, or the same as the wire has it:
                `{"kind": "state-protocol", "touch": {"enabled": True}}`.
        """
        answer = await self._sender.perform(profile_request(self._url, new))
        return profile(answer.response)

    async def meta(self, *, settle: bool = False, timeout_s: float = 30.0) -> LiveMeta:
        """The current cursor, and how the live queries are doing.

        With `settle`, the cursor is past everything appended before, unless that takes longer than
        `timeout_s`: check `settled`.
        """
        request = meta_request(self._url, settle=settle, timeout_s=timeout_s)
        return live_meta((await self._sender.perform(request)).response)

    async def activate(
        self, templates: Iterable[Template], *, ttl_s: float | None = None
    ) -> Activation:
        """Make the server follow query shapes, until `ttl_s` after the last wait with them."""
        request = activate_request(self._url, templates, ttl_s=ttl_s)
        return activation((await self._sender.perform(request)).response)

    async def wait(
        self,
        keys: Iterable[str] = (),
        *,
        cursor: str = NOW,
        timeout_s: float = 30.0,
        key_ids: Iterable[int] = (),
        coarse: bool = False,
        exact: bool = False,
        templates_used: Iterable[str] = (),
        declare: Iterable[Template] = (),
        ttl_s: float | None = None,
    ) -> WaitResult:
        """Wait until one of the keys is touched, once. `query` does the whole loop.

        Args:
            keys: what to wait on, for example `keyset(…).keys`.
            cursor: where to wait from: a cursor from `meta` or from the previous wait.
            timeout_s: how long to wait.
            key_ids: keys in their short form.
            coarse: the keys are those of tables.
            exact: refuse ambiguous keys (at most 16, none in short form).
            templates_used: the ids of the shapes that the keys belong to. Without them, unrelated
                changes may end the wait.
            declare: shapes for the server to follow, if it does not yet.
            ttl_s: how long the server follows them when unused.
        """
        interest = {
            "keys": [*keys],
            "keyIds": [*key_ids],
            "interestMode": "coarse" if coarse else "fine",
            "exact": exact,
            "templateIdsUsed": [*templates_used],
            "declareTemplates": [template.wire() for template in declare],
        }
        request = wait_request(self._url, interest, cursor=cursor, timeout_s=timeout_s, ttl_s=ttl_s)
        return wait_result((await self._sender.perform(request)).response)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"


class AsyncLiveQuery(Generic[T]):
    """The results of a query: the first at once, the next when it may have changed.

    It survives server restarts and lost connections by running the query again. An error it raises
    is final, unless your own query raised it: then you can continue the iteration, which runs the
    query again. The same holds after a cancellation.

    While you work on a result, nothing waits and nothing is missed: the next step covers everything
    that happened since the query ran.
    """

    def __init__(
        self,
        sender: Sender,
        url: str,
        run: Callable[[], Any],
        keys: Keyset,
        *,
        ttl_s: float | None,
        wait_s: float,
    ) -> None:
        self._sender = sender
        self._url = url
        self._run = run
        self._keyset = keys
        self._ttl_s = ttl_s
        self._wait_s = wait_s
        self._name = f"live-{secrets.token_hex(8)}"
        self._retries = Retries(sender.retry)
        # A moment before the query was last run. None: there is none, start over.
        self._cursor: str | None = None
        # Whether the caller has a result from after the cursor.
        self._current = False
        self._denied = False
        self._closed = False
        self._watching: asyncio.Task[None] | None = None

    @property
    def keyset(self) -> Keyset:
        """What the query waits on, unless the server follows no such shape at present."""
        return self._keyset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not await self._until_due():
            raise StopAsyncIteration
        # The cursor is from before this, so whatever changes from here on wakes the next wait.
        result: T = await _settled(self._run())
        self._current = True
        return result

    async def aclose(self) -> None:
        """End the iteration, also where it waits in another task."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.aclose()

    # --- Inside ----------------------------------------------------------------------------------

    async def _until_due(self) -> bool:
        """Wait until the query has to be run; False if the iteration was closed."""
        if self._closed:
            return False
        task = self._watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            await asyncio.wait({task})
        finally:
            self._watching = None
            if not task.done():
                # We are cancelled. Nothing is left running behind the caller's back.
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled() and self._closed:
            return False
        task.result()
        return not self._closed

    async def _watch(self) -> None:
        while self._cursor is None or self._current:
            try:
                await (self._begin() if self._cursor is None else self._wait(self._cursor))
            except LiveNotEnabled:
                # Changed settings end all waits. Whether it is really off is found out by asking.
                if self._cursor is None:
                    raise
                self._cursor = None
            except HeadwaterError as error:
                await self._sender.pause_or_raise(self._retries, error)

    async def _begin(self) -> None:
        """Have the shape followed, then take a cursor: from here on changes are noticed."""
        template = self._keyset.template
        if template is not None:
            request = activate_request(self._url, [template], ttl_s=self._ttl_s)
            response = await self._sender.once(request)
            outcome = activation(response)
            self._denied = bool(outcome.denied)
            if not self._denied and not outcome.covers(template):
                raise unexpected(response, "the answer is about other templates")
        cursor = live_meta(await self._sender.once(meta_request(self._url))).cursor
        self._succeeded()
        self._cursor, self._current = cursor, False

    async def _wait(self, cursor: str) -> None:
        keys = self._keyset.coarse() if self._denied else self._keyset
        request = wait_request(
            self._url,
            keys.wire(),
            cursor=cursor,
            timeout_s=self._wait_s,
            ttl_s=self._ttl_s,
            name=self._name,
        )
        response = await self._sender.once(request)
        result = wait_result(response)
        self._succeeded()
        if result.stale or (result.touched and self._denied):
            self._cursor = None
        elif result.touched:
            self._cursor, self._current = result.cursor, False
        elif is_answer_to(self._name, response):
            # Nothing happened up to there. Other answers may have been mixed up on the way and say
            # nothing about these keys: then the next wait begins where this one did.
            self._cursor = result.cursor

    def _succeeded(self) -> None:
        self._retries.succeeded()
        # A server that was there once is worth waiting for.
        self._retries.policy = self._sender.retry.forever()


async def _settled(outcome: Any) -> Any:
    """What a plain function returned, or an async one returns when it is through."""
    return await outcome if inspect.isawaitable(outcome) else outcome
