"""docs/reference/errors.md, from the server's own error pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.http.error_pages import TITLES, Explanation, explanations

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
_HEAD = """# Errors

Every error code, when it occurs and what to do. For the format of errors, see
[HTTP](http.md#errors). The server has these pages too, below `/errors/`, and each error names its
page in the `Link` header.

Subscriptions, responses and documents have their own codes, in capitals. Any other error there has
a code of the first list, in capitals.

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
