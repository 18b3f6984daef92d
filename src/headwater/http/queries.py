"""Queries: the part of a target after the question mark."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from headwater.core.errors import InvalidQuery
from headwater.core.limits import LIST_PAGE_MAX
from headwater.core.numbers import whole_number
from headwater.http.messages import Request

PAGE_DEFAULT: Final = 100
_FIELDS_MAX: Final = 32


def parse_query(query: bytes, *, blanks: bool = True) -> dict[str, list[str]]:
    """All values of each field, with or without empty ones."""
    try:
        return parse_qs(
            query.decode("ascii"),
            keep_blank_values=blanks,
            max_num_fields=_FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise InvalidQuery("the query string is malformed or has too many fields") from None


def query_of(request: Request) -> dict[str, str]:
    """The first value of each field that has one."""
    fields = parse_query(request.query, blanks=False)
    return {name: values[0] for name, values in fields.items()}


def number_in(query: dict[str, str], name: str) -> int:
    number = whole_number(query[name], digits_max=15)
    if number is None:
        raise InvalidQuery(f"{name} must be a whole number in digits")
    return number


def number_between(query: dict[str, str], name: str, least: int, most: int, *, default: int) -> int:
    number = number_in(query, name) if name in query else default
    if not least <= number <= most:
        raise InvalidQuery(f"{name} must be a number from {least} to {most}")
    return number


def flag_in(query: dict[str, str], name: str) -> bool:
    """Whether a field is `true`; it may also be `false` or absent."""
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidQuery(f"{name} must be true or false")
    return value == "true"


def page_of(request: Request) -> tuple[str, str, int]:
    """Which part of a list is requested: the prefix, the name it comes after, and how many."""
    query = query_of(request)
    limit = number_between(query, "limit", 1, LIST_PAGE_MAX, default=PAGE_DEFAULT)
    return query.get("prefix", ""), query.get("after", ""), limit
