"""The handler that connections call: it finds the route of a request and the handler for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from headwater.core.errors import InvalidPath, StreamError
from headwater.core.paths import check_path
from headwater.http.access.gate import Gate
from headwater.http.answers import NO_STORE
from headwater.http.browsers import Browsers, is_from_page
from headwater.http.cors import METHODS, preflight_headers
from headwater.http.errors import error_response, not_allowed, plain_error
from headwater.http.messages import Answer, Deferred, Request, Response
from headwater.http.paths import DOCUMENTS_ROOT
from headwater.http.resources.assembly import Resources
from headwater.http.routes.matching import RESERVED, RESOURCES, Match, Resource, locate
from headwater.http.routes.route import Handler, Reply


class App:
    def __init__(
        self,
        resources: Resources,
        *,
        cors: bool = True,
        gate: Gate | None = None,
        browsers: Browsers | None = None,
        documents_root: bytes = DOCUMENTS_ROOT,
    ) -> None:
        self._gate = gate
        self.elsewhere: Callable[[Request], Deferred | Awaitable[Answer] | None] | None = None
        """In a cluster: answers requests known to belong to another node, once past the gate."""
        self._remembers = False
        self.documents_root = documents_root
        self._browsers = browsers or Browsers(None, None)
        self._preflight = [*(preflight_headers() if cors else [("Allow", METHODS)]), NO_STORE]
        self._handlers = {resource: _bound(resource, resources) for resource in RESOURCES.values()}

    def __call__(self, request: Request) -> Reply:
        try:
            return self.answer(request)
        except StreamError as error:
            return error_response(error)

    def remember_heads(self) -> None:
        """Let requests whose head has passed once go straight to their handler, as long as their
        caller is valid.

        Only if nothing comes before this app, and nothing else in it depends on more than the head.
        """
        self._remembers = self._gate is None or not self._gate.counts

    def screen(self, request: Request, most: int) -> Response | int:
        """How much body to read. Bodies from unknown senders are not read at all."""
        try:
            match = self._match(request)
            if self._gate is not None:
                self._gate.screen(request, match)
        except StreamError as error:
            return error_response(error)
        return match.body_bytes_max(request.method, most)

    def _match(self, request: Request) -> Match:
        match = request.match
        if match is None:
            match = request.match = locate(request.path, self.documents_root)
        return match

    def answer(self, request: Request) -> Reply:
        """The same, but refusals are raised."""
        match = request.match or self._match(request)
        if not request.hops:
            self._browsers.check(request, match)
        if request.method == "OPTIONS":
            return Response(204, self._preflight)
        request.route = match.resource.path
        if self._gate is not None:
            waiting = self._gate.admit(request, match)
            if waiting is not None:
                return self._dispatch_after(waiting, request, match)
        return self._dispatch(request, match)

    def _dispatch(self, request: Request, match: Match) -> Reply:
        if self.elsewhere is not None and (reply := self.elsewhere(request)) is not None:
            return reply
        resource, args = match
        handlers = self._handlers.get(resource)
        if not handlers:
            return _nowhere(resource)
        handler = handlers.get(request.method)
        if resource.is_control:
            if handler is None and resource.is_reserved_name and request.method == "PUT":
                raise InvalidPath("this path is reserved for a control resource; choose another")
            check_path(args[0])
        if handler is None:
            return not_allowed(resource.allow)
        if self._remembers and request.head is not None and not is_from_page(request):
            request.head.passed(partial(_call, handler, args), request.caller)
        return handler(request, *args)

    async def _dispatch_after(
        self, waiting: Awaitable[None], request: Request, match: Match
    ) -> Answer:
        await waiting
        reply = self._dispatch(request, match)
        if isinstance(reply, Deferred):
            return await reply.resolve()
        return reply if isinstance(reply, Answer) else await reply


def _call(handler: Handler, args: tuple[str, ...], request: Request) -> Reply:
    return handler(request, *args)


def _bound(resource: Resource, resources: Resources) -> dict[str, Handler]:
    """The handlers of a resource by method; empty if this server does not have it."""
    found = {method: route.handler(resources) for method, route in resource.routes.items()}
    return {method: handler for method, handler in found.items() if handler is not None}


def _nowhere(resource: Resource) -> Response:
    if resource is RESERVED:
        raise InvalidPath("everything below __ds is reserved; choose another name")
    return plain_error(404, "not_found", "streams live below /v1/stream/")
