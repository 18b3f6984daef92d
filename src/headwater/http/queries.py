"""Queries of control resources."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from headwater.core.errors import InvalidQuery
from headwater.core.limits import LIST_PAGE_MAX
from headwater.http.messages import Request

_PAGE_DEFAULT: Final = 100


def query_of(request: Request) -> dict[str, str]:
    """Fields by name; of a repeated one, the first value."""
    try:
        fields = parse_qs(request.query.decode("ascii"), max_num_fields=16, errors="strict")
    except ValueError:
        raise InvalidQuery("the query string is malformed or has too many fields") from None
    return {name: values[0] for name, values in fields.items()}


def number_in(query: dict[str, str], name: str) -> int:
    text = query[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidQuery(f"{name} must be a whole number in digits")
    return int(text)


def page_of(request: Request) -> tuple[str, str, int]:
    """Which part of a list is asked for: the prefix, the name it comes after, and how many."""
    query = query_of(request)
    limit = number_in(query, "limit") if "limit" in query else _PAGE_DEFAULT
    if not 1 <= limit <= LIST_PAGE_MAX:
        raise InvalidQuery(f"limit must be a number from 1 to {LIST_PAGE_MAX}")
    return query.get("prefix", ""), query.get("after", ""), limit
