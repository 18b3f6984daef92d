"""Things that do not exist: never did, no longer do, or not on this server."""

from __future__ import annotations

from headwater.core.errors.base import StreamError


class LiveNotEnabled(StreamError):
    code = "not_found"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"queries cannot wait on {path}: set its _profile to state-protocol with touch.enabled"
        )


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
