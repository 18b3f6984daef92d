"""What the engine has committed, written down a second time and as simply as possible.

Every transaction that reached the engine is entered here at the same moment. A stream is all of
its bytes, a fork has its source's bytes copied in. Against this every answer is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    Mutation,
    SoftDeleted,
    StreamConfig,
)


@dataclass
class Account:
    """One stream, from its creation on; it stays in the ledger when the stream is gone."""

    config: StreamConfig
    created_at: int
    """The number of the transaction."""
    content: bytes = b""
    boundaries: list[int] = field(default_factory=lambda: [0])
    """Where appends begin and end."""
    closed: bool = False
    gone_at: int | None = None
    removed: bool = False
    """Gone and not needed by any fork, so that its path is free."""
    # What somebody was told of it. From then on everyone has to see it so; before, while the
    # commit is stored but its end has not got around, a reader may see it or not.
    known: bool = False
    known_end: int = 0
    known_closed: bool = False
    known_gone: bool = False

    def boundary(self, position: int) -> int:
        """The boundary at a position, or the last one before it."""
        return max(b for b in self.boundaries if b <= position)

    def learn(self, end: int, *, closed: bool = False) -> None:
        self.known = True
        self.known_end = max(self.known_end, end)
        self.known_closed = self.known_closed or closed


@dataclass
class Ledger:
    transactions: int = 0
    accounts: dict[int, Account] = field(default_factory=dict)
    by_path: dict[str, list[Account]] = field(default_factory=dict)

    def enter(self, mutations: Sequence[Mutation]) -> None:
        self.transactions += 1
        for mutation in mutations:
            self._enter(mutation)

    def _enter(self, mutation: Mutation) -> None:
        match mutation:
            case Created(config):
                account = Account(config, self.transactions)
                if config.source_id is not None:
                    source = self.accounts[config.source_id]
                    assert len(source.content) >= config.lineage.base, "inherits what is not there"
                    base = config.lineage.base
                    account.content = source.content[:base]
                    account.boundaries = [b for b in source.boundaries if b < base] + [base]
                others = self.by_path.setdefault(config.path, [])
                assert all(other.removed for other in others), "two at one path"
                assert config.id not in self.accounts, "an id was used twice"
                self.accounts[config.id] = account
                others.append(account)
            case Appended():
                account = self.accounts[mutation.stream_id]
                assert account.gone_at is None, "an append to a stream that is gone"
                assert not account.closed, "an append to a closed stream"
                assert mutation.start == len(account.content), "a gap or an overlap"
                account.content += mutation.body
                account.boundaries.append(len(account.content))
            case Closed(stream_id):
                self.accounts[stream_id].closed = True
            case SoftDeleted(stream_id) | Deleted(stream_id):
                account = self.accounts[stream_id]
                if isinstance(mutation, Deleted):
                    needed = [
                        other.config.path
                        for other in self.accounts.values()
                        if other.config.source_id == stream_id and not other.removed
                    ]
                    assert not needed, f"{needed} still read from stream {stream_id}"
                    account.removed = True
                account.gone_at = account.gone_at or self.transactions
            case _:
                pass

    def content(self, path: str) -> bytes:
        """All that was ever written at a path."""
        return b"".join(account.content for account in self.by_path.get(path, []))

    def holds(self, path: str, body: bytes) -> bool:
        return body in self.content(path)

    def is_free(self, path: str) -> bool:
        return all(account.removed for account in self.by_path.get(path, []))
