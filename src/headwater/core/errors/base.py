"""The base class of all refusals."""

from __future__ import annotations

from typing import ClassVar


class StreamError(Exception):
    """A refused request, with a stable code and a message that says what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def details(self) -> dict[str, object]:
        """What a program needs besides the code."""
        return {}
