"""Error codes of other contracts.

A contract that Headwater serves besides its own may have its own names for the reasons of a
refusal. The format is the same everywhere. Routes name their dialect, and their errors are
translated into it when they are sent.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import Unauthorized
from headwater.http.messages import Request, Response

_UNAUTHORIZED: Final = Unauthorized.code


class Dialect(msgspec.Struct, frozen=True):
    codes: dict[str, tuple[str, int]] = {}
    """From our code to the contract's code and status."""
    by_status: dict[int, str] = {}
    """The code for everything else with a status."""
    keyless: dict[str, str] = {}
    """By method: the code for a missing key or token, if it has its own."""

    def spell(self, code: str, status: int) -> tuple[str, int]:
        """A code and its status. Codes that the contract does not name are ours, in its style."""
        there = self.codes.get(code)
        return there or (self.by_status.get(status, code.upper()), status)


def spelled(response: Response, request: Request) -> Response:
    """A refusal in the dialect of its route."""
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
