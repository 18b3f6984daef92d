"""From the result of a handler to an answer, and what to do if it failed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog

from headwater.core.errors import StreamError
from headwater.http.errors import error_response, plain_error
from headwater.http.messages import Answer, Deferred, Request, Response
from headwater.service.replies import Reply

log = structlog.get_logger()


def as_future(answer: Awaitable[Answer]) -> asyncio.Future[Answer]:
    if inspect.iscoroutine(answer):
        return asyncio.get_running_loop().create_task(answer)
    return cast("asyncio.Future[Answer]", answer)


async def resolved(reply: Answer | Deferred | Awaitable[Answer]) -> Answer:
    if isinstance(reply, Deferred):
        return await reply.resolve()
    return reply if isinstance(reply, Answer) else await reply


def as_is(answer: Answer) -> Answer:
    return answer


def outcome(
    done: asyncio.Future[Any] | Reply[Any], render: Callable[[Any], Answer], request: Request
) -> Answer:
    try:
        return render(done.result())
    except (Exception, asyncio.CancelledError) as error:
        return failure(error, request)


def failure(error: BaseException, request: Request | None) -> Response:
    if not isinstance(error, StreamError):
        report(error, request)
    _forget_frames(error)
    if isinstance(error, StreamError):
        return error_response(error)
    return plain_error(
        500, "internal_error", "the server hit an unexpected error; its log has the details"
    )


def _forget_frames(error: BaseException) -> None:
    """An error refers to the frames it passed through, and one of those to the future that holds
    the error. A large body in any of them would stay until the next garbage collection.
    """
    passed: BaseException | None = error
    while passed is not None:
        passed.__traceback__ = None
        passed = passed.__context__


def abandon(request: Request) -> None:
    """Nobody waits for its answer."""
    request.leave_room()
    request.is_abandoned = True
    if request.on_disconnect is not None:
        try:
            request.on_disconnect()
        except Exception as error:
            report(error, request)


def report(error: BaseException, request: Request | None = None) -> None:
    """Log an unexpected error."""
    about = {}
    if request is not None:
        about = {"request_id": request.id, "method": request.method, "route": request.route}
    log.error("unexpected_error", **about, error=repr(error), exc_info=error)
