"""Pages about errors: when a code occurs, and what to do then.

Every refusal names its page in `Link`. The texts are in `error_pages.toml`, which is read when the
first page is requested.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from headwater.http.messages import Headers, Request, Response

ROOT: Final = "/errors/"
_LINK: Final = re.compile(r"\[([^]]+)\]\([^)]+\)")
_HEADERS: Final[Headers] = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cache-Control", "no-cache"),
]
TITLES: Final = {
    "streams": "Streams, groups and transactions",
    "subscriptions": "Subscriptions",
    "responses": "Durable responses",
    "documents": "Documents",
}
"""The contracts that have codes of their own."""


class Explanation(msgspec.Struct, frozen=True):
    status: list[int]
    when: str
    remedy: str


def link_to(code: str) -> tuple[str, str]:
    """The header that names the page about a code."""
    return ("Link", f'<{ROOT}{code}>; rel="help"')


@lru_cache(maxsize=1)
def explanations() -> dict[str, dict[str, Explanation]]:
    """The explanation of each code, by contract."""
    text = files(__package__).joinpath("error_pages.toml").read_text(encoding="utf-8")
    found: Any = tomllib.loads(text)
    return msgspec.convert(found, dict[str, dict[str, Explanation]])


def error_page(request: Request, code: str = "") -> Response:
    """The page about a code, or the list of all codes."""
    if not code:
        names = dict.fromkeys(name for codes in explanations().values() for name in codes)
        lines = "".join(f"{ROOT}{name}\n" for name in names)
        return Response(200, list(_HEADERS), lines.encode())
    found = [
        _section(TITLES[contract], codes[code])
        for contract, codes in explanations().items()
        if code in codes
    ]
    if not found:
        text = f"There is no error {code[:100]!r}. {ROOT} lists all of them.\n"
        return Response(404, list(_HEADERS), text.encode(), code="not_found")
    text = f"{code}\n\n{''.join(found)}{ROOT} lists all codes.\n"
    return Response(200, list(_HEADERS), text.encode())


def _section(title: str, one: Explanation) -> str:
    return (
        f"{title}, status {' or '.join(map(str, one.status))}\n"
        f"When:        {_plain(one.when)}\n"
        f"What to do:  {_plain(one.remedy)}\n\n"
    )


def _plain(markdown: str) -> str:
    """Without links, which lead to pages that the server does not have."""
    return _LINK.sub(r"\1", markdown)
