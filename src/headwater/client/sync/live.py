"""The blocking client. Written by scripts/make_sync.py from aio/live.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar, overload

from headwater.client.aio.live import WAIT_S, AsyncLiveQuery, AsyncLiveStream, _settled
from headwater.client.live_keys import Keyset, Template
from headwater.client.protocol.live import NOW, Activation, LiveMeta, WaitResult
from headwater.client.sync.portal import Blocking, BlockingContext
from headwater.core.live.encodings import Encoding
from headwater.core.live.profile import Profile

T = TypeVar("T")


class LiveStream(Blocking[AsyncLiveStream]):
    """The live side of a stream: queries wait for changes that are appended to it.

        todos = client.stream("orders")
        todos.ensure(content_type="application/json")
        live = todos.live()
        live.set_profile({"kind": "state-protocol", "touch": {"enabled": True}})

        for count in live.query(lambda: 0, entity="todos", where={"tenant": "t1"}):
            print(count)
            break

    Creating one sends nothing.
    """

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
    ) -> LiveQuery[T]: ...
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
    ) -> LiveQuery[T]: ...
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
    ) -> LiveQuery[Any]:
        """Run a query, and again whenever its result may have changed.

        What it waits on follows from the shape of the query. No change is missed, but the query may
        sometimes run unnecessarily.

        Args:
            run: the query, a function (without arguments) that asks your database.
            entity: the table, as in the `type` of its change records.
            where: the fields that the query compares for equality, with their values.
            project: the other fields that the result depends on, including the sort order. None
                means that it may depend on all of them.
            membership_only: the result depends only on which rows match, as a count does.
            encodings: for fields whose encoding is not what their value's type says.
            ttl_s: how long the server follows an unused shape; its default if None.
            wait_s: how long one request waits. Keep it shorter than proxies in between allow.
        """
        return LiveQuery(
            self._portal,
            self._async.query(
                run,
                entity=entity,
                where=where,
                project=project,
                membership_only=membership_only,
                encodings=encodings,
                ttl_s=ttl_s,
                wait_s=wait_s,
            ),
        )

    def profile(self) -> Profile:
        """What the stream is used for, with all settings."""
        return self._portal.call(self._async.profile())

    def set_profile(self, new: Profile | Mapping[str, Any]) -> Profile:
        """Change what the stream is used for, and return all settings.

        Args:
            new: `StateProtocol(TouchSettings(enabled=True))`, or the same as the wire has it:
                `{"kind": "state-protocol", "touch": {"enabled": True}}`.
        """
        return self._portal.call(self._async.set_profile(new))

    def meta(self, *, settle: bool = False, timeout_s: float = 30.0) -> LiveMeta:
        """The current cursor, and how the live queries are doing.

        With `settle`, the cursor is past everything appended before, unless that takes longer than
        `timeout_s`: check `settled`.
        """
        return self._portal.call(self._async.meta(settle=settle, timeout_s=timeout_s))

    def activate(self, templates: Iterable[Template], *, ttl_s: float | None = None) -> Activation:
        """Make the server follow query shapes, until `ttl_s` after the last wait with them."""
        return self._portal.call(self._async.activate(templates, ttl_s=ttl_s))

    def wait(
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
        return self._portal.call(
            self._async.wait(
                keys,
                cursor=cursor,
                timeout_s=timeout_s,
                key_ids=key_ids,
                coarse=coarse,
                exact=exact,
                templates_used=templates_used,
                declare=declare,
                ttl_s=ttl_s,
            )
        )

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncLiveStream", type(self).__name__)


class LiveQuery(BlockingContext[AsyncLiveQuery[T]], Generic[T]):
    """The results of a query: the first at once, the next when it may have changed.

    It survives server restarts and lost connections by running the query again. An error it raises
    is final, unless your own query raised it: then you can continue the iteration, which runs the
    query again. The same holds after a cancellation.

    While you work on a result, nothing waits and nothing is missed: the next step covers everything
    that happened since the query ran.
    """

    @property
    def keyset(self) -> Keyset:
        """What the query waits on, unless the server follows no such shape at present."""
        return self._async.keyset

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._portal.call(self._async._until_due()):
            raise StopIteration
        result: T = self._portal.call(_settled(self._async._run()))
        self._async._current = True
        return result

    def close(self) -> None:
        """End the iteration, also where it waits in another task."""
        self._portal.call(self._async.aclose())
