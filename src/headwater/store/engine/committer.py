"""Commits in a process of their own.

A thread that commits and the event loop share one interpreter, which runs one of them at a time,
and passing it back and forth costs more than most commits. The *committer* is a process with an
interpreter of its own. It only carries out batches. Errors, full disks and everything rare are left
to the engine, which commits the same batch itself and so learns what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, Protocol

from headwater.core.mutations import AnyMutation


class Committer(Protocol):
    """What an engine knows about its committer. The process is run by `headwater.service`.

    It reads batches from its standard input, a socket, and answers on it: first when it is ready,
    then for each batch. Each batch is preceded by its length. It ends when the socket is closed.
    """

    @property
    def command(self) -> Sequence[str]: ...

    @property
    def descriptors(self) -> Sequence[int]:
        """Open files that it inherits."""

    def encode(self, mutations: Sequence[AnyMutation], size_bytes: int) -> bytes | None:
        """A batch for the committer; None if the engine has to commit it itself.

        Called when the committer has finished with the previous one.
        """

    def committed(self, mutations: Sequence[AnyMutation], sync_s: float) -> None:
        """The committer has committed a batch. The sync took this long."""

    def ended(self, mutations: Sequence[AnyMutation]) -> None:
        """It has ended without an answer to this: if it did not finish, nothing may appear later.

        Called on the thread that commits.
        """


class Answer(IntEnum):
    READY = 0
    DONE = 1
    FAILED = 2
    """Nothing of the batch is stored."""


LENGTH: Final = Struct("<I")
"""What precedes a batch."""
ANSWER: Final = Struct("<Bd")
"""An answer, and how long the sync took."""
