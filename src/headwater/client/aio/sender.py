"""Sending requests: credentials, failures as exceptions, and another try where that can help."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from headwater.client.aio.transport import OpenResponse, Transport
from headwater.client.errors import (
    ConnectionFailed,
    HeadwaterError,
    ResponseError,
    ServerUnreachable,
    UnexpectedAnswer,
)
from headwater.client.protocol.addresses import origin_of
from headwater.client.protocol.extensions import not_supported, parse
from headwater.client.protocol.refusals import failure
from headwater.client.protocol.retry import Retries, RetryPolicy
from headwater.client.protocol.streams import (
    ERROR_BYTES_MAX,
    Request,
    Response,
    check_headers,
    merged,
)

T = TypeVar("T")

Token = str | Callable[[], str | Awaitable[str]]
"""A text, or a function that is asked for it before every request."""

Values = Mapping[str, Token]
"""Headers or query parameters by name."""


_ASKING: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """A granted request.

    `in_doubt` tells that an earlier attempt may have been carried out as well, so "it was already
    done" can mean "by ourselves".
    """

    response: Response
    in_doubt: bool


@dataclass(slots=True)
class _Contact:
    """Whether a server was ever there, and since when it has not been."""

    made: bool = False
    missed_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Company:
    """What goes along with every request, to one origin or (None) to any."""

    origin: str | None
    headers: Values
    params: Values
    token: Token | None = None


@dataclass
class Sender:
    """What a client, its streams, readers and producers share to reach the server.

    A client's token, headers and parameters go to the client's own server, and nowhere else.
    """

    transport: Transport
    retry: RetryPolicy
    company: tuple[_Company, ...] = ()
    _contacts: dict[str, _Contact] = field(default_factory=dict)
    _background: set[asyncio.Task[None]] = field(default_factory=set)

    def accompanied(
        self,
        *,
        headers: Values | None = None,
        params: Values | None = None,
        token: Token | None = None,
        origin: str | None = None,
    ) -> Sender:
        """The same, with more that goes along with every request (to one origin)."""
        if not (headers or params or token):
            return self
        company = _Company(origin and origin_of(origin), headers or {}, params or {}, token)
        return replace(self, company=(*self.company, company))

    async def perform(
        self, request: Request, check: Callable[[Response], object] | None = None
    ) -> Answer:
        """Send until the request is granted or the failure is final.

        `check` raises `UnexpectedAnswer` if an answer cannot be the one to this request.
        """
        retries = Retries(self.retry)
        while True:
            try:
                response = await self.once(request)
                if check is not None:
                    check(response)
                return Answer(response, retries.in_doubt)
            except HeadwaterError as error:
                if isinstance(error, UnexpectedAnswer):
                    error.where = error.where or urlsplit(request.url).path
                await self.pause_or_raise(retries, error, repeatable=request.repeatable)

    async def ask(self, request: Request, type: type[T]) -> T:
        """What Headwater says beyond the public protocol; `NotSupported` by other servers."""
        return parse(await self.extra(request), type)

    async def extra(self, request: Request) -> Response:
        """The answer to a request beyond the public protocol; `NotSupported` by other servers."""
        try:
            return (await self.perform(request)).response
        except ResponseError as error:
            raise not_supported(error) or error from error

    async def once(self, request: Request) -> Response:
        """Send once."""
        async with self._contact(request):
            response = await self.transport.send(await self._completed(request))
        self._raise_if_refused(request, response)
        return response

    async def open(self, request: Request) -> OpenResponse:
        """Send once and return while the body is still arriving."""
        async with self._contact(request):
            answer = await self.transport.open(await self._completed(request))
        if 200 <= answer.status < 300:
            return answer
        try:
            body = bytearray()
            while len(body) <= ERROR_BYTES_MAX and (chunk := await answer.next_chunk()) is not None:
                body += chunk
        finally:
            await answer.aclose()
        self._raise_if_refused(request, Response(answer.status, answer.headers, bytes(body)))
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
        """Stop using the present connections: one of them is out of step."""
        await self.transport.distrust()

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that nobody waits for, but that should be done before the end."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def aclose(self) -> None:
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
            # From Python 3.14 on, that does not wait for the callbacks of tasks that are done.
            await asyncio.sleep(0)
        await self.transport.aclose()

    async def _completed(self, request: Request) -> Request:
        """The request with everything that goes along with it; what it has itself counts most."""
        origin = origin_of(request.url)
        headers: dict[str, str] = {}
        params: dict[str, str] = {}
        for company in self.company:
            if company.origin in (None, origin):
                headers = merged(headers, await _current(company.headers))
                if company.token is not None:
                    headers = merged(headers, await _bearer(company.token))
                params |= await _current(company.params)
        headers = merged(headers, request.headers)
        check_headers(headers)
        return replace(request, headers=headers, params={**params, **request.params})

    @asynccontextmanager
    async def _contact(self, request: Request) -> AsyncIterator[None]:
        """Give up soon on a server that has never answered: it will hardly be there."""
        contact = self._contacts.setdefault(origin_of(request.url), _Contact())
        try:
            yield
            contact.made = True
        except ConnectionFailed as error:
            patient = self.retry.give_up_after_s is None
            if contact.made or error.in_doubt or patient:
                contact.made = contact.made or error.in_doubt
                # What only asks does nothing, whether it arrived or not.
                error.in_doubt = error.in_doubt and request.method not in _ASKING
                raise
            now = asyncio.get_running_loop().time()
            if contact.missed_since is None:
                contact.missed_since = now
            if now - contact.missed_since < self.retry.unreachable_after_s:
                raise
            raise _unreachable(request, error) from error

    def _raise_if_refused(self, request: Request, response: Response) -> None:
        error = failure(request, response, now=time.time())
        if error is not None:
            raise error


async def _current(values: Values) -> dict[str, str]:
    return {name: await _value(value) for name, value in values.items()}


async def _value(value: Token) -> str:
    current = value if isinstance(value, str) else value()
    return await current if inspect.isawaitable(current) else current


async def _bearer(token: Token) -> dict[str, str]:
    text = await _value(token)
    if not (text.isascii() and text.isprintable()):
        # Said here: what fails further down would show it.
        raise ValueError("the token has characters that no token has; check its source")
    return {"Authorization": f"Bearer {text}"}


def _unreachable(request: Request, error: ConnectionFailed) -> ServerUnreachable:
    return ServerUnreachable(
        f"no server answers at {origin_of(request.url)} ({error.message}); "
        "start one with `headwater serve`, or check the address"
    )


def _raise(error: HeadwaterError, retries: Retries) -> NoReturn:
    # A refusal of the last attempt does not undo what an earlier one may have done.
    error.in_doubt = error.in_doubt or retries.in_doubt
    raise error
