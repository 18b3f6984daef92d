"""Queries of control resources."""

from __future__ import annotations

from urllib.parse import parse_qs

from headwater.core.errors import InvalidQuery
from headwater.http.messages import Request


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
