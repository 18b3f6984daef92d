"""Stream paths.

A path is one or more segments separated by `/`. A segment has 1 to 256 characters: those that need
no escaping in a URL path (letters, digits, `-._~`, the sub-delimiters, `:`, `@`), and `%`. `.` and
`..` are not allowed, because clients and proxies resolve them. A path has at most 1,024 bytes.

Some paths are reserved, so that no stream can shadow a control resource: everything below `__ds`, a
control name (`_details`, `_groups`, …) as one of the last two segments (`_groups`: three), and the
names of live queries (`touch/meta` and the like) after another segment.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headwater.core.errors import InvalidPath
from headwater.core.limits import PATH_BYTES_MAX, SEGMENT_CHARS_MAX

CONTROL_ROOT: Final = "__ds"
GROUPS: Final = "_groups"
PROFILE: Final = "_profile"
SNAPSHOTS: Final = "_snapshots"
CONTROL_NAMES: Final = frozenset(
    {
        "_details",
        "_position",
        PROFILE,
        GROUPS,
        SNAPSHOTS,
        "_segments",
        "_bulk",
        "_clear",
        "_undelete",
    }
)
TOUCH: Final = "touch"
TOUCH_NAMES: Final = ("meta", "wait", "templates/activate")

_SEGMENT = re.compile(rf"[A-Za-z0-9\-._~!$&'()*+,;=:@%]{{1,{SEGMENT_CHARS_MAX}}}")
_DOTS = frozenset({".", ".."})


def check_segment(segment: str) -> str:
    """Return the name if it is a valid path segment; groups are named like that."""
    if segment in _DOTS or segment.startswith("_") or _SEGMENT.fullmatch(segment) is None:
        raise InvalidPath(
            f"a name has 1 to {SEGMENT_CHARS_MAX} characters as in a stream path, no / and no "
            "leading underscore"
        )
    return segment


def split_touch(path: str) -> tuple[str, str] | None:
    """The stream and the name of a live resource, if the path is one."""
    owner, found, name = path.rpartition(f"/{TOUCH}/")
    return (owner, name) if found and owner and name in TOUCH_NAMES else None


# Every request checks one, and most of them one that was checked before.
@lru_cache(maxsize=1024)
def check_path(path: str) -> str:
    """Return the path if it is valid for a stream."""
    if len(path) > PATH_BYTES_MAX:
        raise InvalidPath(f"a stream path has at most {PATH_BYTES_MAX} bytes")
    segments = path.split("/")
    for segment in segments:
        if segment in _DOTS or _SEGMENT.fullmatch(segment) is None:
            raise InvalidPath(
                f"each segment of a stream path has 1 to {SEGMENT_CHARS_MAX} characters of "
                "A-Z a-z 0-9 - . _ ~ ! $ & ' ( ) * + , ; = : @ % and is not . or .."
            )
    reserved = not CONTROL_NAMES.isdisjoint(segments[-2:]) or GROUPS in segments[-3:]
    if segments[0] == CONTROL_ROOT or reserved or split_touch(path) is not None:
        raise InvalidPath("this path is reserved for a control resource; choose another name")
    return path
