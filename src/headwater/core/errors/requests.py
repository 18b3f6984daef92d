"""Invalid requests: sent again, they are refused again."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


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
    """A message that is not a State Protocol record, in a stream that takes only those."""

    code = "invalid_record"

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"message {index} {problem}; nothing was written")
        self.index = index

    def details(self) -> dict[str, object]:
        return {"index": self.index}


class MissingBefore(StreamError):
    """A change that needs the previous row."""

    code = "missing_before"

    def __init__(self, index: int, operation: str) -> None:
        super().__init__(
            f"message {index}: this stream takes an {operation} only with the row as it was in "
            "old_value; send it, or set touch.onMissingBefore to coarse; nothing was written"
        )
        self.index = index

    def details(self) -> dict[str, object]:
        return {"index": self.index}


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
