"""POST /v1/presign: an address that reads one stream without a token, until a given time."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote, urlencode

import msgspec

from headwater.core.access import Permission, signed
from headwater.core.errors import InvalidBody
from headwater.core.json_bodies import decode_body
from headwater.core.limits import PATH_BYTES_MAX
from headwater.core.paths import check_path
from headwater.http.answers import json_answer
from headwater.http.messages import Request, Response
from headwater.http.paths import STREAM_ROOT
from headwater.service.clock import Clock

# Everything a path can hold is allowed in a URL, except the sign that begins an escape.
_SAFE: Final = "/-._~!$&'()*+,;=:@"


class SignBody(msgspec.Struct, forbid_unknown_fields=True):
    stream: Annotated[str, msgspec.Meta(max_length=PATH_BYTES_MAX)]
    expires_s: int = 3600


class Signing:
    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock

    def sign(self, request: Request) -> Response:
        body = decode_body(request.body, SignBody)
        path = check_path(body.stream)
        seconds = signed.check_duration(body.expires_s)
        request.demand(Permission.READ, path)
        caller = request.caller
        assert caller is not None, "there is no signing without a gate"
        expires_s = self._clock() // 1000 + seconds
        if caller.expires_at_ms is not None and expires_s * 1000 > caller.expires_at_ms:
            left_s = max(0, caller.expires_at_ms - self._clock()) // 1000
            raise InvalidBody(
                f"the address would outlive your key or token, which has {left_s} s left; ask for "
                "less, or use one that lasts longer"
            )
        query = {
            "expires": str(expires_s),
            "key": caller.key_id,
            "signature": signed.sign(self._secret, path, expires_s, caller.key_id),
        }
        target = STREAM_ROOT.decode() + quote(path, safe=_SAFE)
        answer = {"url": f"{target}?{urlencode(query)}", "expires_at_ms": expires_s * 1000}
        return json_answer(answer)
