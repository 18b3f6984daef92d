"""A part of a page that is written by a script, between two comments that stay."""

from __future__ import annotations

from pathlib import Path


def replaced(page: Path, name: str, text: str) -> str:
    """The page with the part called `name` replaced."""
    begin, end = f"<!-- {name}: written by make generate, do not edit -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page.name} has lost one of its markers:\n  {begin}\n  {end}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"
