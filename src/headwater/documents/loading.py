"""A worker: reads one document, and writes a snapshot of it or its content.

`python -m headwater.documents.loading MEMORY_BYTES compact`, or `… text NAME`, or `… json NAME`,
with an empty name for the whole document. Updates are read from stdin, framed, and the result is
written to stdout. The output begins with `SUCCESS`, or with `FAILURE` followed by the reason in a
few words, and the exit status says which.

It is a separate process because applying updates holds the interpreter's lock for as long as it
takes, because a document can take any amount of memory, and because a malformed one must not take
the server down.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from headwater.core.documents.framing import read_frames
from headwater.core.documents.pending import is_applied, parse_state
from headwater.core.errors import InvalidBody

DONE: Final = 0
MALFORMED: Final = 3
TOO_LARGE: Final = 4
UNCLEAR: Final = 5
"""The request lacks the name of a part."""
SUCCESS: Final = b"+"
FAILURE: Final = b"-"
COMPACT: Final = "compact"
TEXT: Final = "text"
_CHECKED_AT_ONCE: Final = 10_000
_NICENESS: Final = 10
_REASON_CHARS_MAX: Final = 300


class Unclear(Exception):
    pass


def load(updates: Iterable[bytes]) -> tuple[Any, bytes | None]:
    """The document that updates make, and the same including updates that wait for others.

    The library may leave an update waiting although everything it needs has arrived since. Merged
    into one, they are in order, and a new document takes all that it can.
    """
    from pycrdt import Doc, merge_updates

    doc: Doc[Any] = Doc()
    waiting = _apply(doc, updates)
    if not waiting:
        return doc, None
    merged = merge_updates(doc.get_update(), *waiting)
    doc = Doc()
    doc.apply_update(merged)
    return doc, merged if _waiting(doc, [merged]) else None


def _apply(doc: Any, updates: Iterable[bytes]) -> list[bytes]:
    """Apply updates; returns those that the document does not hold completely."""
    waiting: list[bytes] = []
    batch: list[bytes] = []
    for update in updates:
        doc.apply_update(update)
        batch.append(update)
        if len(batch) == _CHECKED_AT_ONCE:
            waiting += _waiting(doc, batch)
            batch = []
    return _waiting(doc, waiting + batch)


def _waiting(doc: Any, updates: list[bytes]) -> list[bytes]:
    from pycrdt import get_update

    encoded = doc.get_state()
    state = parse_state(encoded)
    return [one for one in updates if not is_applied(get_update(one, encoded), state)]


def compacted(updates: Iterable[bytes]) -> bytes:
    """One update that replaces all of them."""
    doc, merged = load(updates)
    state: bytes = doc.get_update()
    return state if merged is None else merged


def content(updates: Iterable[bytes], form: str, name: str) -> bytes:
    """The current content of a document, or of the part with a name."""
    doc, _ = load(updates)
    names = sorted(doc.keys())
    if form == TEXT:
        if not name and len(names) > 1:
            raise Unclear(f"the document has several parts: name one of {', '.join(names)}")
        part = name or "".join(names)
        return (_part(doc, part)[0] if part in names else "").encode()
    if name:
        return (_json(doc, name) if name in names else "null").encode()
    parts = (f"{json.dumps(one)}:{_json(doc, one)}" for one in names)
    return f"{{{','.join(parts)}}}".encode()


def _json(doc: Any, name: str) -> str:
    said, is_json = _part(doc, name)
    return said if is_json else json.dumps(said)


def _part(doc: Any, name: str) -> tuple[str, bool]:
    """The content of a part, and whether it is JSON; for rich text, its elements with their tags.

    The type of a part is not stored. It is inferred from its content.
    """
    from pycrdt import Array, Map, Text, XmlFragment

    as_map = str(doc.get(name, type=Map))
    if as_map != "{}":
        return as_map, True
    text = str(doc.get(name, type=Text))
    if text:
        return text, False
    as_array = doc.get(name, type=Array)
    try:
        return (str(as_array), True) if as_array.to_py() else ("", False)
    except ValueError:
        return str(doc.get(name, type=XmlFragment)), False


def _bound(memory_bytes: int) -> None:
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _result(job: Callable[[], bytes]) -> tuple[int, bytes]:
    try:
        return DONE, job()
    except MemoryError:
        return TOO_LARGE, b"it does not fit into the memory that a worker may take"
    except Unclear as error:
        return UNCLEAR, str(error).encode()
    except (InvalidBody, ValueError) as error:
        return MALFORMED, str(error)[:_REASON_CHARS_MAX].encode()
    except BaseException as error:
        # A panic of the library is not an `Exception`.
        if type(error).__name__ != "PanicException":
            raise
        return MALFORMED, str(error)[:_REASON_CHARS_MAX].encode()


def main(memory_bytes: str, form: str, name: str = "") -> int:
    import pycrdt  # noqa: F401 - before memory is bounded, so that what is bounded is the document

    _bound(int(memory_bytes))
    updates = read_frames(sys.stdin.buffer.read)
    job = (lambda: compacted(updates)) if form == COMPACT else lambda: content(updates, form, name)
    status, out = _result(job)
    sys.stdout.buffer.write(SUCCESS if status == DONE else FAILURE)
    sys.stdout.buffer.write(out)
    sys.stdout.buffer.flush()
    return status


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
