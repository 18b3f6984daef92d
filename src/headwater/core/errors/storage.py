"""Failures of storage, and stored data that is damaged."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


class StorageUnavailable(StreamError):
    """The engine could not commit or read."""

    code = "storage_unavailable"

    def __init__(
        self, message: str = "the storage engine could not commit; nothing was written; try again"
    ) -> None:
        super().__init__(message)


class OwnedElsewhere(StreamError):
    """Another node owns this, or is about to. Clients see it only if that node is unreachable."""

    code = "owned_elsewhere"

    def __init__(self, shard: int) -> None:
        super().__init__("the node that owns this cannot be reached right now; try again")
        self.shard = shard


class StorageFull(StorageUnavailable):
    """Nothing that grows can be stored."""

    code = "storage_full"

    def __init__(self) -> None:
        super().__init__(
            "the disk is full, so nothing can be added; deleting and closing streams still works: "
            "delete some, or make room on the disk, then try again"
        )


class OutcomeUnknown(StorageUnavailable):
    """Unknown whether it was stored."""

    code = "outcome_unknown"

    def __init__(self) -> None:
        super().__init__(
            "the storage was lost during the commit, so this may have been stored or not; with a "
            "producer, send the same again and it is stored once"
        )


class HistoryUnavailable(StorageUnavailable):
    """The data is in object storage, which does not answer."""

    code = "history_unavailable"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"this part of the stream is in object storage, which does not answer ({problem}); "
            "try again later"
        )
        self.problem = problem


class DataCorrupt(StreamError):
    """Stored bytes do not match their checksum."""

    code = "data_corrupt"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"stored data is damaged ({where}); run 'headwater verify' on the data directory"
        )
        self.where = where
