"""Operations on durable responses: make, find, abort, delete."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headwater.core.content_types import DEFAULT
from headwater.core.decisions import Append, Create
from headwater.core.errors import OwnedElsewhere, StreamError, StreamGone, StreamNotFound
from headwater.core.expiry import parse_lifetime
from headwater.core.responses import signing
from headwater.core.responses.about import (
    ID_BYTES,
    ROOT,
    About,
    Reason,
    about,
    content_type_of,
    is_id,
    path_of,
)
from headwater.core.responses.allow_list import find_allowed
from headwater.core.responses.errors import (
    RedirectNotAllowed,
    ResponseNotFound,
    StorageFailed,
    TooManyResponses,
    UpstreamFailed,
    UpstreamNotAllowed,
    UpstreamTimeout,
)
from headwater.core.responses.policy import ERROR_BODY_BYTES_MAX, ResponsePolicy
from headwater.core.responses.upstream import Opened, Refused, UpstreamRequest
from headwater.core.targets import TargetRefused, check_each
from headwater.responses.transfer import Store, Transfer, end_response
from headwater.service.background import Retried
from headwater.service.log import Log
from headwater.service.outbound import Outbound, Resolver

if TYPE_CHECKING:
    import httpx

_COMPLETE: Final = "complete"
_PAGE: Final = 1000
_STOPPING_S: Final = 10.0
_DRAWS: Final = 256


class Responses:
    def __init__(
        self,
        log: Log,
        policy: ResponsePolicy,
        secret: bytes,
        *,
        resolve: Resolver | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self.ended = {_COMPLETE: 0, **{reason.value: 0 for reason in Reason}}
        """Responses since the start, by how they ended."""
        self.refused = 0
        """Requests that did not become a response."""
        self.received_bytes = 0
        self.log = log
        self._policy = policy
        self._secret = secret
        self._outbound = Outbound(resolve=resolve, verify=verify)
        self._opening: set[str] = set()
        """Responses that are about to become transfers, and may have a stream already."""
        self._transfers: dict[str, Transfer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_caller: Counter[str] = Counter()
        self._stopping = False
        self._watch = log.watch("responses")
        self._retried = Retried(self._watch)
        self._nodes: Set[int] = frozenset()
        self.elsewhere: Store | None = None
        """In a cluster: appends to a stream that another node owns."""

    @property
    def under_way(self) -> int:
        """Current requests to upstreams, from the first look-up to the last byte."""
        return self._by_caller.total()

    def start(self) -> None:
        """Close what an earlier process left open."""
        self._retried.start(self._recover)

    async def stop(self) -> None:
        """Stop receiving; what has arrived is stored and closed."""
        self._stopping = True
        for transfer in self._transfers.values():
            transfer.end(Reason.INTERRUPTED)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOPPING_S)
        for task in self._tasks:
            task.cancel()
        await self._retried.stop()
        await self._outbound.stop()

    # ── Finding ──────────────────────────────────────────────────────────────────────────────

    def verify(self, response_id: str, expires: list[str], signature: list[str]) -> None:
        signing.verify(self._secret, response_id, expires, signature, self.log.clock())

    async def find(self, response_id: str) -> About:
        """The metadata of a response; it is in memory then."""
        if is_id(response_id):
            entry = await self.log.entry(path_of(response_id))
            with suppress(StreamNotFound, StreamGone):
                known = about(self.log.view(entry).config)
                if known is not None:
                    return known
        raise ResponseNotFound

    # ── Ending ───────────────────────────────────────────────────────────────────────────────

    async def abort(self, response_id: str) -> None:
        """End a response; one that has ended is left as it is."""
        await self.find(response_id)
        await self._end(response_id, Reason.ABORTED)

    async def delete(self, response_id: str) -> None:
        """End a response and drop its data, if it exists."""
        if not is_id(response_id):
            return
        with suppress(StreamNotFound, StreamGone):
            await self.log.delete(path_of(response_id), purge=True)
        await self._end(response_id, Reason.ABORTED)

    async def _end(self, response_id: str, reason: Reason) -> None:
        transfer = self._transfers.get(response_id)
        if transfer is not None:
            transfer.end(reason)
            await transfer.done.wait()
        else:
            # If another node fetches it, its next append fails.
            with suppress(StreamNotFound, StreamGone):
                await end_response(self.log, path_of(response_id), reason)

    # ── Responses of nodes that are gone ─────────────────────────────────────────────────────

    async def gained(self, shards: Set[int]) -> None:
        self._retried.start(self._recover)

    def looked(self) -> None:
        """Check whether a node is gone that was fetching for streams of this one."""
        before, self._nodes = self._nodes, self._living()
        if before - self._nodes:
            self._retried.start(self._recover)

    def _living(self) -> Set[int]:
        membership = self.log.membership
        return {node.id for node in membership.seen.nodes} if membership else frozenset()

    async def _recover(self) -> None:
        after = ""
        while page := await self.log.list_streams(f"{ROOT}/", after, _PAGE):
            for stream in page:
                if not stream.closed and await self._is_left(stream.path):
                    await self._close(stream.path, Reason.INTERRUPTED)
            after = page[-1].path

    async def _is_left(self, path: str) -> bool:
        """Whether this node has to end a response, because no node fetches it any more."""
        response_id = path.removeprefix(f"{ROOT}/")
        if response_id in self._transfers or response_id in self._opening:
            return False
        try:
            known = about(self.log.view(await self.log.entry(path)).config)
        except (OwnedElsewhere, StreamNotFound, StreamGone):
            return False
        return known is not None and known.node not in self._living()

    # ── Making ───────────────────────────────────────────────────────────────────────────────

    async def open(self, asked: UpstreamRequest, caller: str) -> Opened | Refused:
        """Make a request. Returns when the head of the answer is there; the rest follows."""
        response_id = self._new_id()
        try:
            async with self._place(caller) as place:
                response = await self._fetch_head(asked)
                try:
                    answer = await self._judge(response)
                    if isinstance(answer, Refused):
                        self.refused += 1
                        await response.aclose()
                        return answer
                    self._opening.add(response_id)
                    opened = await self._create(response_id, answer)
                except BaseException:
                    await response.aclose()
                    raise
                self._take_in(opened.id, response, place)
                return opened
        except StreamError:
            self.refused += 1
            raise
        finally:
            self._opening.discard(response_id)

    @asynccontextmanager
    async def _place(self, caller: str) -> AsyncIterator[_Place]:
        """A slot for one concurrent request; kept beyond the block if it is taken."""
        policy = self._policy
        if self._stopping or self.under_way >= policy.requests_max:
            raise TooManyResponses("the server makes as many requests as it may; try again shortly")
        if self._by_caller[caller] >= policy.requests_per_caller_max:
            raise TooManyResponses(
                f"{policy.requests_per_caller_max} of your responses are under way, which is as "
                "many as there may be; wait for one to end, or abort one"
            )
        place = _Place(self._by_caller, caller)
        try:
            yield place
        finally:
            if not place.taken:
                place.leave()

    async def _fetch_head(self, asked: UpstreamRequest) -> httpx.Response:
        import httpx

        policy, target = self._policy, asked.target
        allowed = find_allowed(policy.allow, policy.networks, target)
        head_s = policy.head_timeout_ms / 1000
        # The transfer limits how long the body may take.
        timeout = httpx.Timeout(head_s, read=None)
        try:
            async with asyncio.timeout(head_s):
                addresses = check_each(await self._outbound.addresses(target), allowed)
                return await self._outbound.send(
                    target, addresses, asked.method, asked.headers, asked.body, timeout
                )
        except TargetRefused as error:
            raise UpstreamNotAllowed(f"Upstream-URL {error}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise UpstreamTimeout(head_s) from None
        except OSError:
            raise UpstreamFailed("the host of Upstream-URL cannot be resolved") from None
        except httpx.ConnectError:
            raise UpstreamFailed("the upstream cannot be reached") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamFailed(f"the upstream failed: {type(error).__name__}") from None

    async def _judge(self, response: httpx.Response) -> str | Refused:
        """The content type of an answer to keep."""
        status = response.status_code
        content_type = content_type_of(response.headers.get("content-type"))
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if 300 <= status < 400:
            raise RedirectNotAllowed(status)
        if status >= 400:
            body = b"" if encoding != "identity" else await self._error_body(response)
            return Refused(status, content_type, body)
        if encoding != "identity":
            # It was not requested, and is never decoded here.
            raise UpstreamFailed("the upstream encodes its answer, though it was asked not to")
        return content_type

    async def _error_body(self, response: httpx.Response) -> bytes:
        import httpx

        body = b""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self._policy.head_timeout_ms / 1000):
                async for part in response.aiter_raw():
                    body += part
                    if len(body) >= ERROR_BODY_BYTES_MAX:
                        break
        return body[:ERROR_BODY_BYTES_MAX]

    def _new_id(self) -> str:
        """An id; in a cluster, one whose stream this node owns, so it stores what it fetches.

        Raises OwnedElsewhere if it owns next to nothing: then another node should do it.
        """
        membership = self.log.membership
        response_id = secrets.token_urlsafe(ID_BYTES)
        if membership is None:
            return response_id
        for _ in range(_DRAWS):
            if membership.home(path_of(response_id)) in membership.shards:
                return response_id
            response_id = secrets.token_urlsafe(ID_BYTES)
        membership.demand(membership.home(path_of(response_id)))
        return response_id

    async def _create(self, response_id: str, content_type: str) -> Opened:
        membership = self.log.membership
        known = About(content_type, node=membership.node_id if membership else None)
        expires_s = self.log.clock() // 1000 + 1 + self._policy.ttl_s
        moment = datetime.fromtimestamp(expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        command = Create(
            path=path_of(response_id),
            content_type=DEFAULT,
            lifetime=parse_lifetime(None, moment),
            version=1,
            description=known.encode(),
        )
        try:
            await self.log.together(lambda: self.log.create(command))
        except StreamError as error:
            raise StorageFailed(error.message) from None
        signature = signing.sign(self._secret, response_id, expires_s)
        return Opened(response_id, content_type, expires_s, signature)

    def _take_in(self, response_id: str, response: httpx.Response, place: _Place) -> None:
        place.taken = True
        policy = self._policy
        bytes_max, idle_s = policy.response_bytes_max, policy.idle_timeout_ms / 1000
        transfer = Transfer(self._store, path_of(response_id), response, bytes_max, idle_s)
        self._transfers[response_id] = transfer
        if self._stopping:
            transfer.end(Reason.INTERRUPTED)
        task = asyncio.ensure_future(self._run(response_id, transfer, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store(self, path: str, command: Append) -> None:
        try:
            await self.log.append(path, command)
        except OwnedElsewhere:
            # Its shard was handed over; this node still fetches the rest.
            if self.elsewhere is None:
                raise
            await self.elsewhere(path, command)

    async def _run(self, response_id: str, transfer: Transfer, place: _Place) -> None:
        reason: Reason | None = Reason.INTERRUPTED
        try:
            reason = await transfer.run()
        except Exception as error:
            self._watch.failed(error)
        finally:
            if reason is not None:
                await self._close(path_of(response_id), reason)
            self.ended[_COMPLETE if reason is None else reason.value] += 1
            self.received_bytes += transfer.size
            del self._transfers[response_id]
            place.leave()
            transfer.done.set()

    async def _close(self, path: str, reason: Reason) -> None:
        """Close a response with a reason, retrying in the background."""

        async def close() -> None:
            with suppress(StreamNotFound, StreamGone):
                if self._stopping:
                    # Its owner ends what this node leaves.
                    with suppress(OwnedElsewhere):
                        await end_response(self.log, path, reason)
                else:
                    await self.log.together(lambda: end_response(self.log, path, reason))

        try:
            await close()
        except Exception as error:
            self._watch.failed(error)
            self._retried.start(close)


class _Place:
    """One request in progress."""

    def __init__(self, by_caller: Counter[str], caller: str) -> None:
        self.taken = False
        self._by_caller = by_caller
        self._caller = caller
        by_caller[caller] += 1

    def leave(self) -> None:
        self._by_caller[self._caller] -= 1
        if not self._by_caller[self._caller]:
            del self._by_caller[self._caller]
