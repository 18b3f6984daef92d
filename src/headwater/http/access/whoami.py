"""`GET /v1/whoami`: who is calling, and what they may do.

User interfaces use it to offer only what will work. It reveals nothing that a caller could not find
out by trying.
"""

from __future__ import annotations

import msgspec

from headwater.core.access import Permission
from headwater.core.paths import check_path
from headwater.http.answers import json_answer
from headwater.http.messages import Request, Response
from headwater.http.queries import query_of


def whoami(request: Request) -> Response:
    caller = request.caller
    body: dict[str, object] = {
        "access": caller is not None,
        "name": caller and caller.name,
        "expires_at_ms": caller and caller.expires_at_ms,
        "grants": caller and msgspec.to_builtins(caller.grants.text()),
        "administers": caller is None or caller.grants.administer_server,
    }
    path = query_of(request).get("stream")
    if path is not None:
        body["stream"] = _over(request, check_path(path))
    return json_answer(body)


def _over(request: Request, path: str) -> dict[str, object]:
    asked = (Permission.READ, Permission.WRITE, Permission.DELETE)
    return {"path": path, **{one.value: request.may(one, path) for one in asked}}
