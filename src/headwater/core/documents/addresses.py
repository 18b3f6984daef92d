"""Addresses of documents, and the streams that hold them.

The document `{path}` of the service `{service}` is the stream `yjs/{service}/docs/{path}`.
Permission to read, write or delete that stream is permission to do so with the document. A service
is one segment and a path one or more, of letters, digits, `-` and `_`; a path has at most 256
characters.

What belongs to a document is stored below it, under names with a dot, which no document can have:

- `….awareness/{name}`: who is there and where their cursors are. It is deleted an hour after its
  last use. Names have letters, digits and `-._~`, and do not begin with a dot;
- `….snapshots/{offset}`: the state of the document at that offset. It is valid once the stream is
  closed, so an unfinished one never is. The newest valid one counts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headwater.core.errors import InvalidPath, InvalidQuery
from headwater.core.paths import check_path

ROOT: Final = "yjs"
DOCS: Final = "docs"
PATH_CHARS_MAX: Final = 256
AWARENESS: Final = "default"
AWARENESS_TTL_S: Final = 3600
SNAPSHOT: Final = "snapshot"
"""As an offset: the newest snapshot, wherever it is."""
_SNAPSHOT_END: Final = f"_{SNAPSHOT}"

_SERVICE = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,255}", re.ASCII)


@lru_cache(maxsize=4096)
def stream_of(service: str, path: str) -> str:
    """The stream of a document."""
    if _SERVICE.fullmatch(service) is None:
        raise InvalidPath("a service is named with up to 256 letters, digits, - and _")
    if len(path) > PATH_CHARS_MAX or _PATH.fullmatch(path) is None:
        raise InvalidPath(
            f"a document's path has up to {PATH_CHARS_MAX} letters, digits, - and _, and slashes "
            "between them"
        )
    return check_path(f"{ROOT}/{service}/{DOCS}/{path}")


def is_document(stream: str) -> bool:
    """Whether a stream can be a document."""
    root, _, rest = stream.partition("/")
    service, _, rest = rest.partition("/")
    docs, _, path = rest.partition("/")
    return (root, docs) == (ROOT, DOCS) and bool(
        _SERVICE.fullmatch(service) and len(path) <= PATH_CHARS_MAX and _PATH.fullmatch(path)
    )


def awareness_of(stream: str, name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise InvalidQuery("awareness is named with up to 256 letters, digits and -._~")
    return check_path(f"{belonging_to(stream)}awareness/{name}")


def belonging_to(stream: str) -> str:
    """The path prefix of everything that belongs to a document."""
    return f"{stream}/."


def snapshots_of(stream: str) -> str:
    return f"{belonging_to(stream)}snapshots/"


def snapshot_of(stream: str, offset: str) -> str:
    return f"{snapshots_of(stream)}{offset}"


def snapshot_name(offset: str) -> str:
    """The offset that a client sends to read a snapshot."""
    return f"{offset}{_SNAPSHOT_END}"


def parse_snapshot_name(text: str) -> str | None:
    """The offset of a snapshot, if a client asks for one."""
    return text.removesuffix(_SNAPSHOT_END) if text.endswith(_SNAPSHOT_END) else None
