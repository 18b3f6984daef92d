"""The blocking client. Written by scripts/make_sync.py from aio/client.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.client.aio.client import AsyncHeadwater
from headwater.client.aio.sender import Token, Values
from headwater.client.aio.transport import Timeouts, Transport
from headwater.client.protocol.extensions import PAGE, StreamPage, StreamSummary
from headwater.client.protocol.retry import RetryPolicy
from headwater.client.protocol.streams import Response
from headwater.client.protocol.subscriptions import SubscriptionInfo, WebhookKeys
from headwater.client.sync.message import Transaction
from headwater.client.sync.portal import BlockingContext, Portal
from headwater.client.sync.response import DurableResponse
from headwater.client.sync.stream import Stream
from headwater.client.sync.subscription import Subscription


class Headwater(BlockingContext[AsyncHeadwater]):
    """A Durable Streams server.

        with Headwater("http://localhost:4437") as client:
            greetings = client.stream("greetings")
            greetings.ensure(content_type="text/plain")
            greetings.append("hello")
            print(greetings.read_text())

    Connections are pooled and shared by everything the client creates, so one client per server is
    enough. Several threads may use it; a reader, one at a time.

    Args:
        url: the server's address. Streams are below `/v1/stream`, unless the address has a path of
            its own. Without an address, it is the server that the `headwater` command would use:
            `STREAM_URL`, the current context, or the default port on this machine, with the token
            and the certificates that belong to it.
        token: a bearer token, or a function (without arguments) that returns the current one.
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
        self._portal = Portal()
        self._async = AsyncHeadwater(
            url,
            token,
            headers=headers,
            params=params,
            timeouts=timeouts,
            retry=retry,
            verify=verify,
            transport=transport,
            context=context,
        )

    @property
    def url(self) -> str:
        """The address below which the streams are."""
        return self._async.url

    def stream(
        self,
        path: str,
        *,
        content_type: str | None = None,
        headers: Values | None = None,
        params: Values | None = None,
    ) -> Stream:
        """A handle for the stream at a path, which does not have to exist yet.

        Args:
            path: the stream's path on the server, or the whole address of a stream anywhere. The
                client's token, headers and parameters go to its own server only.
            content_type: of an existing stream; saves a request before the first append.
            headers: sent with every request for this stream, like those of the client.
            params: query parameters, in the same way.
        """
        return Stream(
            self._portal,
            self._async.stream(path, content_type=content_type, headers=headers, params=params),
        )

    def streams(self, prefix: str = "", *, deleted: bool = False) -> list[StreamSummary]:
        """All streams with this prefix, sorted by path; or the deleted ones that can be
        undeleted."""
        return self._portal.call(self._async.streams(prefix, deleted=deleted))

    def stream_page(
        self,
        prefix: str = "",
        *,
        after: str = "",
        limit: int = PAGE,
        deleted: bool = False,
    ) -> StreamPage:
        """A page of the list of streams: those after `after`, at most `limit`."""
        return self._portal.call(
            self._async.stream_page(prefix, after=after, limit=limit, deleted=deleted)
        )

    def transaction(self) -> Transaction:
        """A transaction that publishes to any number of streams, all or nothing.

        To acknowledge a message in the same step, start with `Message.transaction`.
        """
        return Transaction(self._portal, self._async.transaction())

    def subscription(self, name: str) -> Subscription:
        """A handle for the subscription with this name, which does not have to exist yet."""
        return Subscription(self._portal, self._async.subscription(name))

    def subscriptions(self, prefix: str = "") -> list[SubscriptionInfo]:
        """The server's subscriptions, sorted by name, without their streams."""
        return self._portal.call(self._async.subscriptions(prefix))

    def webhook_keys(self) -> WebhookKeys:
        """The keys for verifying requests to webhooks."""
        return self._portal.call(self._async.webhook_keys())

    def durable_request(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        body: bytes | None = None,
    ) -> DurableResponse:
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
        return DurableResponse(
            self._portal,
            self._portal.call(
                self._async.durable_request(
                    url,
                    method=method,
                    headers=headers,
                    json=json,
                    body=body,
                )
            ),
        )

    def durable_response(self, url: str) -> DurableResponse:
        """The durable response with a signed address, to read or to abort it."""
        return DurableResponse(self._portal, self._async.durable_response(url))

    def request(
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

            answer = client.request("GET", "/metrics")

        GET and HEAD are retried when that can help; other methods are not.
        """
        return self._portal.call(
            self._async.request(method, path, params=params, json=json, headers=headers)
        )

    def close(self) -> None:
        """Close all connections."""
        self._portal.finish(self._async.aclose())

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        self._portal.finish(self._async.__aexit__(exc_type, *_))

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncHeadwater", type(self).__name__)
