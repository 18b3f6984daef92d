"""Texts that are nested too deeply."""

from typing import Final

TOO_DEEP: Final = 1_000_000
"""More than any Python can parse: from 3.14 on, the stack is the limit, and not a number."""
