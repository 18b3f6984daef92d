"""What a worker does: one document in, a snapshot of it or its content out.

`python -m headwater.documents.loading MEMORY_BYTES compact`, or `… text NAME`, or `… json NAME`,
with an empty name for all there is. Updates come in on stdin, framed, and the result goes out on
stdout. What goes out begins with `SUCCESS`, or else with `FAILURE` and is the reason in a few
words, and the exit status says which one it is.

This is a process of its own because applying updates holds the interpreter's lock for as long as
it takes, because a document can take any amount of memory, and because a malformed one must not
take the server down.
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
"""The name of what is asked for is missing."""
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
    """The document that updates make, and the same with those among them that wait for others.

    The library may leave an update waiting although all it needs has come since. Merged into one,
    they are in order, and a new document takes all that it can.
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
    """Apply updates; gives those of which the document does not hold everything."""
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
    """One update that stands for all of them."""
    doc, merged = load(updates)
    state: bytes = doc.get_update()
    return state if merged is None else merged


def content(updates: Iterable[bytes], form: str, name: str) -> bytes:
    """What a document says now, or the part of it that has a name."""
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
    """What a part says, and whether that is JSON; of rich text, its elements with their tags.

    What a part was made as is not stored. It is what it has the content of.
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
        # A panic of the library is no `Exception`.
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
