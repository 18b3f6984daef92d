"""The client object: one server, its credentials, its connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urljoin

import msgspec

from headwater.client.aio.message import AsyncTransaction
from headwater.client.aio.response import AsyncDurableResponse
from headwater.client.aio.sender import Sender, Token, Values
from headwater.client.aio.stream import AsyncStream
from headwater.client.aio.subscription import AsyncSubscription
from headwater.client.aio.transport import HttpxTransport, Timeouts, Transport
from headwater.client.protocol.addresses import stream_root
from headwater.client.protocol.extensions import (
    PAGE,
    StreamPage,
    StreamSummary,
    check_deleted,
    following,
    list_request,
)
from headwater.client.protocol.responses import address_of, upstream_request
from headwater.client.protocol.retry import RetryPolicy
from headwater.client.protocol.streams import Request, Response, merged, unexpected
from headwater.client.protocol.subscriptions import (
    SubscriptionInfo,
    WebhookKeys,
    jwks_url,
    subscription_page,
    subscriptions_url,
)
from headwater.client.protocol.values import UNREADABLE
from headwater.contexts import check_ca, find_server
from headwater.core.content_types import JSON


class AsyncHeadwater:
    """A Durable Streams server.

        async with AsyncHeadwater("http://localhost:4437") as client:
            greetings = client.stream("greetings")
            await greetings.ensure(content_type="text/plain")
            await greetings.append("hello")
            print(await greetings.read_text())

    Connections are pooled and shared by everything the client creates, so one client per server is
    enough. It belongs to the event loop that it is first used on.

    Args:
        url: the server's address. Streams are below `/v1/stream`, unless the address has a path of
            its own. Without an address, it is the server that the `headwater` command would use:
            `STREAM_URL`, the current context, or the default port on this machine, with the token
            and the certificates that belong to it.
        token: a bearer token, or a function (plain or async) that returns the current one.
        headers: sent with every request to the server. A value may be a function, like the token.
        params: query parameters, in the same way.
        timeouts: how long to wait for the server.
        retry: how long to retry when the server cannot be reached or is busy.
        verify: how to check TLS certificates: True, the path of a file with CA certificates to
            trust, an `ssl.SSLContext`, or False not to check.
        transport: another way to the server, instead of httpx.
        context: a server by the name that `headwater ctx add` gave it, instead of an address.
    """

    def __init__(
        self,
        url: str | None = None,
        token: Token | None = None,
        *,
        headers: Values | None = None,
        params: Values | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        verify: Any = True,
        transport: Transport | None = None,
        context: str | None = None,
    ) -> None:
        if url is None or context is not None:
            server = find_server(url, context=context)
            url = server.url
            if token is None and server.authorization is not None:
                headers = {"Authorization": server.authorization, **(headers or {})}
            if verify is True and url.startswith("https:"):
                verify = check_ca(server.ca) or True
        self._root = stream_root(url)
        sender = Sender(
            transport or HttpxTransport(timeouts=timeouts, verify=verify), retry or RetryPolicy()
        )
        self._sender = sender.accompanied(
            headers=headers, params=params, token=token, origin=self._root
        )

    @property
    def url(self) -> str:
        """The address below which the streams are."""
        return self._root

    def stream(
        self,
        path: str,
        *,
        content_type: str | None = None,
        headers: Values | None = None,
        params: Values | None = None,
    ) -> AsyncStream:
        """A handle for the stream at a path, which does not have to exist yet.

        Args:
            path: the stream's path on the server, or the whole address of a stream anywhere. The
                client's token, headers and parameters go to its own server only.
            content_type: of an existing stream; saves a request before the first append.
            headers: sent with every request for this stream, like those of the client.
            params: query parameters, in the same way.
        """
        sender = self._sender.accompanied(headers=headers, params=params)
        return AsyncStream(sender, self._root, path, content_type=content_type)

    async def streams(self, prefix: str = "", *, deleted: bool = False) -> list[StreamSummary]:
        """All streams with this prefix, sorted by path; or the deleted ones that can be
        undeleted."""
        found: list[StreamSummary] = []
        after: str | None = ""
        while after is not None:
            page = await self.stream_page(prefix, after=after, deleted=deleted)
            found += page.streams
            after = page.next
        return found

    async def stream_page(
        self, prefix: str = "", *, after: str = "", limit: int = PAGE, deleted: bool = False
    ) -> StreamPage:
        """A page of the list of streams: those after `after`, at most `limit`."""
        request = list_request(self._root, prefix, after, limit, deleted=deleted)
        page = await self._sender.ask(request, StreamPage)
        following(after, page.next)
        return check_deleted(page) if deleted else page

    def transaction(self) -> AsyncTransaction:
        """A transaction that publishes to any number of streams, all or nothing.

        To acknowledge a message in the same step, start with `AsyncMessage.transaction`.
        """
        return AsyncTransaction(self._sender, self._root)

    def subscription(self, name: str) -> AsyncSubscription:
        """A handle for the subscription with this name, which does not have to exist yet."""
        return AsyncSubscription(self._sender, self._root, name)

    async def subscriptions(self, prefix: str = "") -> list[SubscriptionInfo]:
        """The server's subscriptions, sorted by name, without their streams."""
        found: list[SubscriptionInfo] = []
        after: str | None = ""
        while after is not None:
            params = {"prefix": prefix, "after": after, "limit": "1000"}
            request = Request("GET", subscriptions_url(self._root), params=params)
            page, next = subscription_page((await self._sender.perform(request)).response)
            found += page
            after = following(after, next)
        return found

    async def webhook_keys(self) -> WebhookKeys:
        """The keys for verifying requests to webhooks."""
        answer = await self._sender.perform(Request("GET", jwks_url(self._root)))
        try:
            return WebhookKeys(answer.response.body)
        except UNREADABLE as error:
            raise unexpected(answer.response, f"these are no keys: {error}") from None

    async def durable_request(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        body: bytes | None = None,
    ) -> AsyncDurableResponse:
        """Make the server send a request elsewhere and store the answer as it arrives.

        Returns when the upstream starts to answer. The request is made once, whatever happens to
        this connection. The server has to allow the address (`--proxy-allow`).

        Args:
            url: the address to fetch.
            method: GET, POST, PUT, PATCH or DELETE.
            headers: for the upstream. `Authorization` goes there too; the client's token does not.
            json: a body, to be encoded as JSON.
            body: a body, sent unchanged.

        Raises:
            UpstreamRefused: the upstream answered with an error.
        """
        typed = {"Content-Type": JSON} if json is not None else None
        encoded = body or b"" if json is None else msgspec.json.encode(json)
        request = upstream_request(self._root, url, method, merged(typed, headers), encoded)
        response = (await self._sender.perform(request)).response
        content_type = response.headers.get("upstream-content-type")
        address = address_of(self._root, response)
        return AsyncDurableResponse(self._sender, address, content_type=content_type)

    def durable_response(self, url: str) -> AsyncDurableResponse:
        """The durable response with a signed address, to read or to abort it."""
        return AsyncDurableResponse(self._sender, url)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send any other request to the server and return its answer; errors are raised.

        Use it for anything without its own method, such as a server's metrics:

            answer = await client.request("GET", "/metrics")

        GET and HEAD are retried when that can help; other methods are not.
        """
        request = Request(
            method,
            urljoin(self._root, path),
            params=params or {},
            headers=merged({"Content-Type": JSON} if json is not None else None, headers),
            body=b"" if json is None else msgspec.json.encode(json),
            repeatable=method in ("GET", "HEAD"),
        )
        return (await self._sender.perform(request)).response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._sender.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._root}>"
