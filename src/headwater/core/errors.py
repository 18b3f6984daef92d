"""Everything that a request can be refused for, one class per reason.

A failure carries its data as attributes, a stable `code` that programs may rely on, and a message
that tells a person what to do about it. How a failure looks on the wire (its HTTP status and
headers) is decided in one place, `headwater.http.errors`. Those that only subscriptions know are in
`headwater.core.subscriptions.errors`.
"""

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


class InvalidRequest(StreamError):
    code = "invalid_request"


class InvalidPath(InvalidRequest):
    code = "invalid_path"


class InvalidOffset(InvalidRequest):
    code = "invalid_offset"


class UnknownOffset(InvalidRequest):
    """Well formed, but not a position of this stream."""

    code = "unknown_offset"

    def __init__(self, offset: str) -> None:
        super().__init__(
            f"{offset} is not a position of this stream (it may belong to an earlier stream of "
            "the same name); start again with offset=-1 or use an offset this stream gave out"
        )
        self.offset = offset


class InvalidHeader(InvalidRequest):
    code = "invalid_header"

    def __init__(self, header: str, problem: str) -> None:
        super().__init__(f"{header}: {problem}")
        self.header = header


class InvalidQuery(InvalidRequest):
    code = "invalid_query"


class InvalidJson(InvalidRequest):
    code = "invalid_json"


class EmptyBody(InvalidRequest):
    code = "empty_body"


class MissingContentType(InvalidRequest):
    code = "missing_content_type"

    def __init__(self) -> None:
        super().__init__("send a Content-Type header that matches the stream's")


class InvalidFork(InvalidRequest):
    code = "invalid_fork"


class InvalidBody(InvalidRequest):
    code = "invalid_body"


class InvalidRecord(InvalidRequest):
    """A message that is not a State Protocol record, in a stream that takes nothing else."""

    code = "invalid_record"

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"message {index} {problem}; nothing was written")
        self.index = index

    def details(self) -> dict[str, object]:
        return {"index": self.index}


class MissingBefore(StreamError):
    """A change that needs the row as it was."""

    code = "missing_before"

    def __init__(self, index: int, operation: str) -> None:
        super().__init__(
            f"message {index}: this stream takes an {operation} only with the row as it was in "
            "old_value; send it, or set touch.onMissingBefore to coarse; nothing was written"
        )
        self.index = index

    def details(self) -> dict[str, object]:
        return {"index": self.index}


class LiveNotEnabled(StreamError):
    code = "not_found"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"queries cannot wait on {path}: set its _profile to state-protocol with touch.enabled"
        )


class MissingId(InvalidRequest):
    code = "missing_id"

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class EpochMustStartAtZero(InvalidRequest):
    code = "epoch_must_start_at_zero"

    def __init__(self, epoch: int, seq: int) -> None:
        super().__init__(f"the first request of epoch {epoch} must have Producer-Seq 0, not {seq}")
        self.epoch = epoch
        self.seq = seq


class Unauthorized(StreamError):
    code = "unauthorized"

    def __init__(
        self, message: str = "send a valid key or token: Authorization: Bearer …", *, sent: bool
    ) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether there was a token at all."""


class Forbidden(StreamError):
    """Says what is lacking and nothing about what there is."""

    code = "forbidden"

    def __init__(self, permission: str) -> None:
        super().__init__(
            f"this needs the permission to {permission} here; use another key or token"
        )
        self.permission = permission


class QuotaExceeded(StreamError):
    code = "quota_exceeded"

    def __init__(self, kind: str, account: str, limit: int) -> None:
        whose = repr(account) if account else "this server"
        super().__init__(
            f"{whose} may hold {limit} {kind}, and this would be more; delete something, or have "
            "the quota raised"
        )


class CrossSite(StreamError):
    code = "cross_site"

    def __init__(self, origin: str | None) -> None:
        shown = (origin or "another site")[:200]
        setting = f" with --cors-origin {shown}" if origin else " with --cors-origin"
        super().__init__(
            f"pages of {shown} may not change anything here; allow them{setting}, if they may"
        )


class UnknownHost(StreamError):
    code = "unknown_host"

    def __init__(self, host: str) -> None:
        name = host.rpartition(":")[0] or host
        super().__init__(
            f"this server is not known as {host[:200]!r}; use its address or localhost, or allow "
            f"the name with --allowed-host {name[:200]}"
        )


class JsonRequired(StreamError):
    code = "json_required"

    def __init__(self) -> None:
        super().__init__("send this from a page with Content-Type: application/json")


class ArrowUnavailable(StreamError):
    code = "arrow_unavailable"

    def __init__(self) -> None:
        super().__init__(
            "this server cannot make Arrow: accept application/x-ndjson, or have the server "
            "installed with pip install 'headwater[arrow]'"
        )


class StreamNotFound(StreamError):
    code = "stream_not_found"

    def __init__(self, path: str) -> None:
        super().__init__("no such stream; create it with PUT")
        self.path = path


class GroupNotFound(StreamError):
    code = "group_not_found"

    def __init__(self, name: str) -> None:
        super().__init__("no such group; create it with PUT")
        self.name = name


class SnapshotNotFound(StreamError):
    code = "snapshot_not_found"

    def __init__(self) -> None:
        super().__init__("no such snapshot; read the stream from its beginning")


class StreamGone(StreamError):
    """Deleted, but kept for its forks."""

    code = "stream_gone"

    def __init__(self, path: str) -> None:
        super().__init__("the stream was deleted; forks of it can still be read")
        self.path = path


class OffsetExpired(StreamError):
    code = "offset_expired"

    def __init__(self, offset: str, earliest: str) -> None:
        super().__init__(
            f"the stream does not keep what followed {offset} any more; the earliest offset is "
            f"{earliest}, and what lies between the two is gone"
        )
        self.offset = offset
        self.earliest = earliest


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
        self.setting = setting


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
    """One of the publishes of a transaction cannot be done, so none was."""

    code = "publish_refused"

    def __init__(self, index: int, reason: StreamError) -> None:
        super().__init__(f"publish {index}: {reason.message}")
        self.index = index
        self.reason = reason


class BodyTooLarge(StreamError):
    code = "body_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the body is larger than {limit_bytes} bytes; send it in several requests"
        )
        self.limit_bytes = limit_bytes


class BodiesFull(StreamError):
    code = "bodies_full"

    def __init__(self) -> None:
        super().__init__(
            "bodies that were sent before take up all the room there is; try again shortly"
        )


class TooManyMessages(StreamError):
    code = "too_many_messages"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"an append has at most {limit} messages; send the rest in another one, or raise "
            "messages_per_append_max"
        )
        self.limit = limit


class TooBusy(StreamError):
    """A queue is full. Nothing was written."""

    code = "too_busy"

    def __init__(self, message: str = "the write queue is full; try again shortly") -> None:
        super().__init__(message)


class TooManyProducers(StreamError):
    code = "too_many_producers"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this stream knows {limit} producers, the most there may be; use a Producer-Id again, "
            "wait until idle ones are forgotten, or raise producers_per_stream_max"
        )
        self.limit = limit


class TooManyReaders(TooBusy):
    code = "too_many_readers"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} live readers follow this stream already; try again later")
        self.limit = limit


class TooManyReadersOfCaller(TooBusy):
    code = "too_many_readers_of_caller"

    def __init__(self, limit: int) -> None:
        super().__init__(f"you have {limit} live reads open, the most there may be; end one first")
        self.limit = limit


class RateExceeded(TooBusy):
    code = "rate_exceeded"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too much in too short a time; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class BuffersFull(StreamError):
    code = "buffers_full"

    def __init__(self) -> None:
        super().__init__("too much data waits for slow readers; try again shortly")


class StorageUnavailable(StreamError):
    """The engine could not commit or read."""

    code = "storage_unavailable"

    def __init__(
        self, message: str = "the storage engine could not commit; nothing was written; try again"
    ) -> None:
        super().__init__(message)


class OwnedElsewhere(StreamError):
    """Another node of the cluster owns this, or is about to. Only seen if it cannot be asked."""

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
    """It may have been stored or not."""

    code = "outcome_unknown"

    def __init__(self) -> None:
        super().__init__(
            "the connection to the storage was lost during the commit, so this may have been "
            "stored or not; with a producer, send the same again and it is stored once"
        )


class HistoryUnavailable(StorageUnavailable):
    """It is in object storage, which does not answer."""

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
