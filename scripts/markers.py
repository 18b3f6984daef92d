"""Parts of a page that are written by a script, between two marker comments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def replaced(page: Path, parts: Mapping[str, str]) -> str:
    """The page with each named part replaced by its text."""
    whole = page.read_text(encoding="utf-8")
    for name, text in parts.items():
        begin = f"<!-- {name}: written by make generate, do not edit -->"
        end = f"<!-- {name}: end -->"
        before, found, rest = whole.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page.name} has lost one of its markers:\n  {begin}\n  {end}")
        whole = f"{before}{begin}\n\n{text}\n{end}{after}"
    return whole
