"""Requests that conflict with the current state."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


class Conflict(StreamError):
    code = "conflict"


class SnapshotOutdated(Conflict):
    code = "snapshot_outdated"

    def __init__(self, kept: int) -> None:
        super().__init__(f"the stream has {kept} newer snapshots; take one at a later offset")
        self.kept = kept


class ConfigConflict(Conflict):
    code = "config_conflict"

    def __init__(self, setting: str) -> None:
        super().__init__(f"the stream already exists with a different {setting}")


class PathReserved(Conflict):
    """The path belongs to a deleted stream that forks still need."""

    code = "path_reserved"

    def __init__(self, path: str) -> None:
        super().__init__(
            "a deleted stream at this path still has forks; delete those or choose another path"
        )
        self.path = path


class UndeleteConflict(Conflict):
    code = "undelete_conflict"


class SourceDeleted(Conflict):
    code = "source_deleted"

    def __init__(self, path: str) -> None:
        super().__init__("the source stream was deleted and cannot be forked any more")
        self.path = path


class ContentTypeMismatch(Conflict):
    code = "content_type_mismatch"

    def __init__(self, expected: str, received: str) -> None:
        super().__init__(f"the stream holds {expected}; the request says {received}")
        self.expected = expected
        self.received = received


class StreamClosed(Conflict):
    code = "stream_closed"

    def __init__(self, next_offset: str) -> None:
        super().__init__("the stream is closed and takes no more appends")
        self.next_offset = next_offset


class ProfileConflict(Conflict):
    code = "profile_conflict"

    def __init__(self, content_type: str) -> None:
        super().__init__(
            "the state-protocol profile is for application/json streams; "
            f"this one holds {content_type}"
        )


class DuplicateIds(Conflict):
    code = "duplicate_id"

    def __init__(self, ids: list[str]) -> None:
        shown = ", ".join(ids[:10]) + (", …" if len(ids) > 10 else "")
        super().__init__(f"the stream already holds messages with these ids: {shown}")
        self.ids = ids


class GroupConflict(Conflict):
    code = "group_conflict"


class StaleReceipts(Conflict):
    code = "stale_receipt"

    def __init__(self, receipts: list[str]) -> None:
        super().__init__(
            f"{len(receipts)} of the receipts are stale: those messages went to someone else or "
            "are settled; nothing was changed"
        )
        self.receipts = receipts


class SequenceGap(Conflict):
    code = "sequence_gap"

    def __init__(self, expected: int, received: int) -> None:
        super().__init__(
            f"Producer-Seq {received} is ahead of the expected {expected}; "
            f"send the requests from {expected} on first"
        )
        self.expected = expected
        self.received = received


class StreamSeqConflict(Conflict):
    code = "stream_seq_conflict"

    def __init__(self, last: str, received: str) -> None:
        super().__init__(f"Stream-Seq {received!r} must sort after the last one, {last!r}")
        self.last = last
        self.received = received


class StaleEpoch(StreamError):
    code = "stale_epoch"

    def __init__(self, current: int) -> None:
        super().__init__(
            f"a newer instance of this producer has taken over with epoch {current}; "
            f"stop, or claim epoch {current + 1} starting at Producer-Seq 0"
        )
        self.current = current


class PublishRefused(StreamError):
    """One publish of a transaction is refused, so none was done."""

    code = "publish_refused"

    def __init__(self, index: int, reason: StreamError) -> None:
        super().__init__(f"publish {index}: {reason.message}")
        self.index = index
        self.reason = reason
