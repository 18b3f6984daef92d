"""The gate: every request passes it before it reaches a resource.

It establishes who is calling, whether they may, and whether they are within their rate limit. A
server without access control and rate limits has no gate.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from headwater.core.access import Caller
from headwater.core.errors import StreamError, Unauthorized
from headwater.http.access import rules
from headwater.http.access.accounts import Accounts
from headwater.http.access.identity import Identity
from headwater.http.access.tokens import UnknownSigner, refused
from headwater.http.messages import Request
from headwater.http.paths import PROBES
from headwater.http.routes.matching import Match
from headwater.service.clock import Clock


class Gate:
    def __init__(self, identity: Identity | None, accounts: Accounts | None, clock: Clock) -> None:
        self.identity = identity
        self.accounts = accounts
        self.unauthorized = 0
        self.forbidden = 0
        self._clock = clock

    @property
    def counts(self) -> bool:
        """Whether it has to see every request, because there are rate limits."""
        return self.accounts is not None

    def admit(self, request: Request, match: Match) -> Awaitable[None] | None:
        """Admit a request or raise; returns an awaitable if newer keys have to be fetched first."""
        if match.resource.path in PROBES or request.is_of_node:
            return None
        if self.identity is None or match.need(request.method).lets_pass(request):
            self._charge(request, request.peer.address)
            return None
        try:
            caller = self._identify(self.identity, request, match)
        except UnknownSigner:
            return self._admit_later(self.identity, request, match)
        self._enter(caller, request, match)
        return None

    def screen(self, request: Request, match: Match) -> None:
        """Raise if the sender is unknown, before the body is read."""
        public = request.is_of_node or match.need(request.method).lets_pass(request)
        if self.identity is None or public:
            return
        # If keys have to be fetched first, that happens when the request is complete.
        with suppress(UnknownSigner):
            request.caller = self._identify(self.identity, request, match)

    async def _admit_later(self, identity: Identity, request: Request, match: Match) -> None:
        try:
            if not await identity.tokens.look_again():
                raise self._turned_away(request)
            caller = self._identify(identity, request, match)
        except UnknownSigner:
            raise self._turned_away(request) from None
        self._enter(caller, request, match)

    def _identify(self, identity: Identity, request: Request, match: Match) -> Caller:
        try:
            return identity.find(request, match, self._clock())
        except Unauthorized as error:
            raise self._turned_away(request, error) from None

    def _turned_away(self, request: Request, error: StreamError | None = None) -> StreamError:
        """Slow down guessing, per address."""
        self.unauthorized += 1
        self._charge(request, f"guesses from {request.peer.address}")
        return error or refused()

    def _enter(self, caller: Caller, request: Request, match: Match) -> None:
        request.caller = caller
        self._charge(request, caller.name)
        try:
            rules.permit(request, match.need(request.method), match.subject, caller)
        except StreamError:
            self.forbidden += 1
            raise

    def _charge(self, request: Request, name: str) -> None:
        accounts = self.accounts
        if accounts is None or request.hops:
            return
        accounts.charge_request(name, len(request.body))
        if accounts.counts_bytes:
            request.charge = lambda size: accounts.charge_bytes(name, size)
