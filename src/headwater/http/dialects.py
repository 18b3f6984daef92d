"""Error codes of other contracts.

A contract that Headwater serves besides its own may have its own names for why a request is
refused. The form is the same everywhere. Routes name their dialect, and what they refuse is spelled
in it when it is sent.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import Unauthorized
from headwater.http.messages import Request, Response

_UNAUTHORIZED: Final = Unauthorized.code


class Dialect(msgspec.Struct, frozen=True):
    codes: dict[str, tuple[str, int]] = {}
    """Our code, and what it is there, with its status."""
    by_status: dict[int, str] = {}
    """What all others with a status are."""
    keyless: dict[str, str] = {}
    """By method: what a missing key or token is called, if it has its own name."""

    def spell(self, code: str, status: int) -> tuple[str, int]:
        """A code and its status. What the contract has no name for is our own, in its manner."""
        there = self.codes.get(code)
        return there or (self.by_status.get(status, code.upper()), status)


def spelled(response: Response, request: Request) -> Response:
    """A refusal as the client of its route knows it."""
    dialect = request.match.resource.dialect if request.match is not None else None
    if dialect is None or not isinstance(response.body, bytes) or not response.code:
        return response
    code, status = dialect.spell(response.code, response.status)
    if response.code == _UNAUTHORIZED and b"authorization" not in request.headers:
        code = dialect.keyless.get(request.method, code)
    if (code, status) == (response.code, response.status):
        return response
    body = msgspec.json.decode(response.body)
    body["error"]["code"] = code
    return msgspec.structs.replace(
        response, status=status, body=msgspec.json.encode(body), code=code
    )
