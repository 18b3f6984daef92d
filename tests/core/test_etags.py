"""Entity tags: different whenever the answer may be."""

from __future__ import annotations

from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.etags import etag, matches
from tests.support.properties import THOROUGH

positions = st.integers(0, 10**15)
reads = st.tuples(
    st.integers(1, 10**9), st.sampled_from(["a", "a/b", "b"]), positions, positions, st.booleans()
)
Read = tuple[int, str, int, int, bool]


def tag_of(read: Read) -> str:
    stream_id, path, start, end, closed = read
    return etag(stream_id, path, start, end, closed=closed)


@THOROUGH
@given(reads, reads)
def test_two_reads_share_a_tag_only_if_they_are_the_same(a: Read, b: Read) -> None:
    assert (tag_of(a) == tag_of(b)) == (a == b)


@THOROUGH
@given(reads)
def test_a_tag_is_a_quoted_string_that_names_the_path_and_the_span(read: Read) -> None:
    tag = tag_of(read)
    assert tag[0] == tag[-1] == '"'
    path, start, end, *closed = tag[1:-1].split(":")
    assert b64decode(path).decode() == read[1]
    assert (int(start.split("_")[1]), int(end.split("_")[1])) == (read[2], read[3])
    assert closed == (["c"] if read[4] else [])


@THOROUGH
@given(reads, st.lists(reads, max_size=4), st.data())
def test_if_none_match_finds_a_tag_anywhere_in_a_list(
    read: Read, others: list[Read], data: st.DataObject
) -> None:
    tag = tag_of(read)
    tags = [tag_of(other) for other in others]
    weakened = [data.draw(st.sampled_from(["", "W/"])) + candidate for candidate in tags]
    assert matches(", ".join(weakened), tag) == (tag in tags)
    assert matches(", ".join([*weakened, tag]), tag)
    assert matches(",".join([f"W/{tag}", *weakened]), tag)


@THOROUGH
@given(reads)
def test_a_star_matches_everything_and_a_piece_of_a_tag_nothing(read: Read) -> None:
    tag = tag_of(read)
    assert matches(" * ", tag)
    assert not matches(tag[1:-1], tag)
    assert not matches(tag[:-1], tag)
    assert not matches("", tag)
