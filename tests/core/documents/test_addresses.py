"""From the address of a document to its streams."""

from __future__ import annotations

import pytest

from headwater.core.documents import addresses
from headwater.core.errors import InvalidPath, InvalidQuery
from headwater.core.paths import check_path

OFFSET = "0000000000000001_0000000000000042"


def test_a_document_is_a_stream() -> None:
    assert addresses.stream_of("notes", "a/b-c_d/E9") == "yjs/notes/docs/a/b-c_d/E9"


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/.b", "a.md", "a b", "ä", "a%2Fb"),
        *("a\n", "a?b", "_details", "a/_groups/g", "touch/meta", "x" * 257),
    ],
)
def test_paths_that_no_document_has(path: str) -> None:
    with pytest.raises(InvalidPath):
        addresses.stream_of("notes", path)


@pytest.mark.parametrize("service", ["", ".", "..", "a/b", "a.b", "a b", "x" * 257])
def test_services_that_there_are_not(service: str) -> None:
    with pytest.raises(InvalidPath):
        addresses.stream_of(service, "a")


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "a b", "ä", "x" * 257, "_details"])
def test_names_that_awareness_cannot_have(name: str) -> None:
    with pytest.raises((InvalidQuery, InvalidPath)):
        addresses.awareness_of("yjs/s/docs/a", name)


def test_nothing_that_belongs_to_a_document_is_one() -> None:
    stream = addresses.stream_of("s", "a")
    for path in (
        addresses.awareness_of(stream, "default"),
        addresses.snapshot_of(stream, OFFSET),
    ):
        check_path(path)
        assert path.startswith(addresses.belonging_to(stream))
        with pytest.raises(InvalidPath):
            addresses.stream_of("s", path.removeprefix("yjs/s/docs/"))


def test_the_longest_path_has_room_for_what_belongs_to_it() -> None:
    stream = addresses.stream_of("s" * 256, "a" * 256)
    check_path(addresses.snapshot_of(stream, OFFSET))
    check_path(addresses.awareness_of(stream, "n" * 256))


def test_snapshots_by_name() -> None:
    assert addresses.parse_snapshot_name(addresses.snapshot_name(OFFSET)) == OFFSET
    assert addresses.parse_snapshot_name(OFFSET) is None
