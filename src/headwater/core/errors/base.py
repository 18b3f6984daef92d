"""The base of all refusals."""

from __future__ import annotations

from typing import ClassVar


class StreamError(Exception):
    """A request that is refused, with a stable code and a message that says what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def details(self) -> dict[str, object]:
        """What a program needs to know in addition to the code."""
        return {}
