"""Sending requests: credentials, failures as exceptions, and another try where that can help."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from headwater.client.errors import HeadwaterError, UnexpectedAnswer
from headwater.client.protocol import Request, Response
from headwater.client.refusals import failure
from headwater.client.retry import Retries, RetryPolicy
from headwater.client.transport import OpenResponse, Transport

Token = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that is asked for one before every request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A granted request.

    `in_doubt` tells that an earlier attempt may have been carried out as well, so "it was already
    done" can mean "by ourselves".
    """

    response: Response
    in_doubt: bool


class Sender:
    """What a client, its streams, readers and producers share to reach the server."""

    def __init__(
        self,
        transport: Transport,
        *,
        headers: Mapping[str, str],
        token: Token | None,
        retry: RetryPolicy,
    ) -> None:
        self.retry = retry
        self._transport = transport
        self._headers = dict(headers)
        self._token = token
        self._background: set[asyncio.Task[None]] = set()

    async def perform(self, request: Request) -> Answer:
        """Send until the request is granted or the failure is final."""
        retries = Retries(self.retry)
        while True:
            try:
                return Answer(await self.once(request), retries.in_doubt)
            except HeadwaterError as error:
                await self.pause_or_raise(retries, error, repeatable=request.repeatable)

    async def once(self, request: Request) -> Response:
        """Send once."""
        response = await self._transport.send(await self._completed(request))
        self._raise_if_refused(request, response)
        return response

    async def open(self, request: Request) -> OpenResponse:
        """Send once and return while the body is still arriving."""
        answer = await self._transport.open(await self._completed(request))
        if 200 <= answer.status < 300:
            return answer
        try:
            body = b""
            while (chunk := await answer.next_chunk()) is not None:
                body += chunk
        finally:
            await answer.aclose()
        self._raise_if_refused(request, Response(answer.status, answer.headers, body))
        raise AssertionError("a status outside 2xx is always a failure")

    async def pause_or_raise(
        self, retries: Retries, error: HeadwaterError, *, repeatable: bool = True
    ) -> None:
        """Wait as long as the next attempt should be put off, or raise if there is none."""
        now = asyncio.get_running_loop().time()
        delay_s = retries.delay_after(error, repeatable=repeatable, now=now, random=random.random())
        if delay_s is None:
            _raise(error, retries)
        if isinstance(error, UnexpectedAnswer):
            await self.distrust()
        await asyncio.sleep(delay_s)

    async def distrust(self) -> None:
        """Do not use the present connections any more; one of them is confused."""
        await self._transport.distrust()

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that nobody waits for, but that should be done before the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def aclose(self) -> None:
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        await self._transport.aclose()

    async def _completed(self, request: Request) -> Request:
        headers = {**self._headers, **request.headers}
        if self._token is not None and "Authorization" not in request.headers:
            token = self._token if isinstance(self._token, str) else self._token()
            if inspect.isawaitable(token):
                token = await token
            if not (token.isascii() and token.isprintable()):
                # Said here: what fails further down would show it.
                raise ValueError("the token has characters that no token has; check its source")
            headers["Authorization"] = f"Bearer {token}"
        return replace(request, headers=headers)

    def _raise_if_refused(self, request: Request, response: Response) -> None:
        error = failure(request, response, now=time.time())
        if error is not None:
            raise error


def _raise(error: HeadwaterError, retries: Retries) -> NoReturn:
    # A refusal of the last attempt does not undo what an earlier one may have done.
    error.in_doubt = error.in_doubt or retries.in_doubt
    raise error
