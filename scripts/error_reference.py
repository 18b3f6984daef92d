"""docs/reference/errors.md, from what the server says about its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.http.error_pages import TITLES, Explanation, explanations

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
_HEAD = """# Errors

Every code that a server answers with: when you meet it, and what to do.
[HTTP](http.md#errors) says how an error looks. A server has these pages too, below `/errors/`, and
each error names its own in the header `Link`.

Other contracts have codes of their own, in capitals. What they have no name for has that of the
first list, in capitals.

<!-- Written by make generate from src/headwater/http/error_pages.toml. -->
"""


def generate() -> dict[Path, str]:
    return {PAGE: _HEAD + "".join(_sections())}


def _sections() -> Iterator[str]:
    for contract, codes in explanations().items():
        yield f"\n## {TITLES[contract]}\n"
        for code, one in codes.items():
            yield _section(code, one)


def _section(code: str, one: Explanation) -> str:
    statuses = " or ".join(map(str, one.status))
    return f"\n### `{code}`\n\n**{statuses}.** {one.when}\n\n**What to do:** {one.remedy}\n"
