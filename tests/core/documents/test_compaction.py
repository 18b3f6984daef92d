"""When documents are compacted, and what their snapshots must not lose."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pycrdt import (
    Array,
    Doc,
    Map,
    Text,
    XmlElement,
    XmlFragment,
    XmlText,
    get_update,
    merge_updates,
)

from headwater.core.documents.compaction import droppable_to, is_due
from headwater.core.documents.pending import is_applied, parse_state
from headwater.documents.loading import Unclear, compacted, content
from tests.support import seeds


@pytest.mark.parametrize(
    "tail, at, size, due",
    [
        (999, 0, 0, False),
        (1000, 0, 0, True),
        (1999, 1000, 10, False),
        (2000, 1000, 10, True),
        # A large document waits for a share of its size.
        (2000, 1000, 4001, False),
        (2001, 1000, 4004, True),
    ],
)
def test_a_document_is_due(tail: int, at: int, size: int, due: bool) -> None:
    assert is_due(tail, at, size, 1000) is due


def test_a_large_document_is_not_copied_for_every_little() -> None:
    """All compactions together copy no more than a few times what was written."""
    at = size = copied = 0
    for tail in range(0, 10_000_000, 1000):
        if is_due(tail, at, size, 1000):
            at = size = tail
            copied += size
    assert copied < 6 * 10_000_000


def test_only_what_a_snapshot_covers_is_dropped() -> None:
    assert droppable_to(100, 50) == 50
    assert droppable_to(100, 500) == 100


# ── Updates that wait for others ─────────────────────────────────────────────────────────────


def edits(count: int, seed: int) -> tuple[Doc[Any], list[bytes]]:
    """A document and its updates: insertions and deletions."""
    rng, doc, updates = random.Random(seed), Doc[Any](), list[bytes]()
    text = doc.get("text", type=Text)
    kept = doc.observe(lambda event: updates.append(event.update))
    for number in range(count):
        length = len(str(text))
        if length > 10 and rng.random() < 0.3:
            at = rng.randrange(length - 5)
            del text[at : at + rng.randint(1, 5)]
        else:
            text.insert(rng.randint(0, length), f"{number} ")
    doc.unobserve(kept)
    return doc, updates


def said(updates: list[bytes]) -> str:
    doc: Doc[Any] = Doc()
    for update in updates:
        doc.apply_update(update)
    return str(doc.get("text", type=Text))


@pytest.mark.parametrize("seed", seeds.several(20))
def test_a_snapshot_keeps_updates_that_wait_for_others(seed: int) -> None:
    """Whatever is missing at the time, it is all there when the rest arrives."""
    doc, updates = edits(40, seed)
    rng = random.Random(seed)
    late = sorted(rng.sample(range(len(updates)), rng.randint(1, 10)))
    early = [one for number, one in enumerate(updates) if number not in late]
    rng.shuffle(early)
    half = len(early) // 2
    snapshot = compacted(early[:half])
    snapshot = compacted([snapshot, *early[half:]])
    rest = [updates[number] for number in late]
    rng.shuffle(rest)
    expected = str(doc.get("text", type=Text))
    # Merged, because this library, unlike Yjs, does not always go back to what waits.
    assert said([merge_updates(snapshot, *rest)]) == expected
    assert said([compacted([snapshot, *rest])]) == expected
    assert content([snapshot, *rest], "text", "text").decode() == expected


def test_an_update_is_applied_when_nothing_of_it_is_left() -> None:
    _, updates = edits(30, 1)
    doc: Doc[Any] = Doc()
    for update in updates:
        doc.apply_update(update)
    encoded = doc.get_state()
    state = parse_state(encoded)
    assert all(is_applied(get_update(one, encoded), state) for one in updates)
    nothing = Doc[Any]().get_state()
    assert not any(is_applied(get_update(one, nothing), {}) for one in updates)


def test_a_snapshot_is_no_larger_than_it_must_be() -> None:
    _, updates = edits(500, 3)
    snapshot = compacted(updates)
    assert len(snapshot) < sum(map(len, updates))
    assert compacted([snapshot]) == snapshot


@pytest.mark.parametrize("update", [b"", b"\xff\xff\xff", b"nonsense", b"\x01\x01\x01\x00\xff"])
def test_a_malformed_update_is_told(update: bytes) -> None:
    _, updates = edits(3, 1)
    with pytest.raises(ValueError, match="update"):
        compacted([*updates, update])


# ── Content ──────────────────────────────────────────────────────────────────────────────────


def whole() -> list[bytes]:
    doc: Doc[Any] = Doc()
    doc["map"] = Map({"a": 1, "b": [1, "zwei", None]})
    doc["list"] = Array(["x", "y", {"z": True}])
    doc["text"] = Text('say "hello"\n')
    page = doc.get("page", type=XmlFragment)
    page.children.append(XmlElement("p", {}, [XmlText("para")]))
    return [doc.get_update()]


def test_content_by_name() -> None:
    assert content(whole(), "text", "text") == b'say "hello"\n'
    assert content(whole(), "text", "page") == b"<p>para</p>"
    assert content(whole(), "text", "absent") == b""
    assert content(whole(), "json", "text") == b'"say \\"hello\\"\\n"'
    assert content(whole(), "json", "absent") == b"null"
    assert content([], "json", "") == b"{}"
    assert content([], "text", "") == b""


def test_all_content_as_json() -> None:
    assert json.loads(content(whole(), "json", "")) == {
        "list": ["x", "y", {"z": True}],
        "map": {"a": 1, "b": [1, "zwei", None]},
        "page": "<p>para</p>",
        "text": 'say "hello"\n',
    }


def test_text_of_several_parts_needs_a_name() -> None:
    with pytest.raises(Unclear, match="list, map, page, text"):
        content(whole(), "text", "")
