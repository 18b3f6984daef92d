"""Entity tags.

The tag of a read is `"{path}:{start}:{end}"`, the path in base64, with `:c` before the closing
quote when the read reaches the end of a closed stream. Start and end carry the id of the stream
itself, not of the run they belong to, so the tag changes when a path is deleted and created again,
whatever the new stream holds.
"""

from __future__ import annotations

from base64 import b64encode

from headwater.core.offsets import format_offset


def etag(stream_id: int, path: str, start: int, end: int, *, closed: bool) -> str:
    name = b64encode(path.encode()).decode()
    span = f"{format_offset(stream_id, start)}:{format_offset(stream_id, end)}"
    return f'"{name}:{span}{":c" if closed else ""}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Weak comparison with a list of tags, as If-None-Match requires."""
    if if_none_match.strip() == "*":
        return True
    return any(
        candidate.strip().removeprefix("W/") == tag for candidate in if_none_match.split(",")
    )
