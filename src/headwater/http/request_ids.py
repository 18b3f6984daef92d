"""Names for requests, by which a line of the log and a complaint find each other.

A client may name its request (`X-Request-Id`). A name that could confuse a log (too long, or with
characters that mean something elsewhere) is not taken. Names made here are a number behind
something random of this process: unique enough, and nearly free.
"""

from __future__ import annotations

import re
import secrets
from itertools import count
from typing import Final

_SANE: Final = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_process: Final = secrets.token_hex(4)
_numbers: Final = count(1)


def request_id(given: bytes | None) -> str:
    if given is not None and _SANE.fullmatch(given):
        return given.decode("ascii")
    return f"{_process}-{next(_numbers):x}"
