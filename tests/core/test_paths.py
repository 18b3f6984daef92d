"""Stream paths: what a stream may be called."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core.errors import InvalidPath
from headwater.core.paths import CONTROL_NAMES, GROUPS, check_path
from tests.support.properties import THOROUGH

ALLOWED = string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@%"

segments = st.text(ALLOWED, min_size=1, max_size=100).filter(
    lambda segment: segment not in {".", "..", "__ds"} and segment not in CONTROL_NAMES
)
paths = st.lists(segments, min_size=1, max_size=6).map("/".join)


@THOROUGH
@given(paths)
def test_every_path_of_good_segments_is_kept_as_it_is(path: str) -> None:
    assert check_path(path) == path


@THOROUGH
@given(paths, st.characters(exclude_characters=ALLOWED + "/"), st.data())
def test_one_other_character_anywhere_spoils_a_path(
    path: str, other: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(path)))
    with pytest.raises(InvalidPath):
        check_path(path[:at] + other + path[at:])


@THOROUGH
@given(st.text(ALLOWED + "/", max_size=40))
@example("/")
@example("a//b")
@example("a/")
@example("/a")
def test_a_path_is_good_exactly_if_each_segment_is(path: str) -> None:
    parts = path.split("/")
    good = all(0 < len(part) <= 100 and part not in {".", ".."} for part in parts)
    reserved = parts[0] == "__ds" or bool(CONTROL_NAMES & set(parts[-2:]))
    if good and not reserved:
        assert check_path(path) == path
    else:
        with pytest.raises(InvalidPath):
            check_path(path)


def test_the_bounds_are_sharp() -> None:
    longest_segment = "s" * 256
    assert check_path(longest_segment) == longest_segment
    longest = "/".join([longest_segment] * 3 + ["t" * 253])
    assert len(longest) == 1024
    assert check_path(longest) == longest
    for too_long in (longest_segment + "s", longest + "t"):
        with pytest.raises(InvalidPath):
            check_path(too_long)


def test_groups_and_what_is_below_them_is_reserved() -> None:
    for reserved in ("_groups/a/b", "a/_groups", "a/_groups/b", "a/_groups/b/c"):
        with pytest.raises(InvalidPath):
            check_path(reserved)
    assert check_path("a/_groups/b/c/d") == "a/_groups/b/c/d"


@pytest.mark.parametrize("name", sorted(CONTROL_NAMES - {GROUPS}))
def test_control_names_are_reserved_in_the_last_two_places_only(name: str) -> None:
    for reserved in (name, f"a/{name}", f"a/{name}/b", f"a/b/{name}/c", f"{name}/a"):
        with pytest.raises(InvalidPath):
            check_path(reserved)
    for free in (f"{name}/a/b", f"a/{name}/b/c", f"a/x{name}", f"a/{name}x"):
        assert check_path(free) == free


def test_everything_below_the_control_root_is_reserved() -> None:
    for reserved in ("__ds", "__ds/a", "__ds/subscriptions/a/b/c"):
        with pytest.raises(InvalidPath):
            check_path(reserved)
    assert check_path("a/__ds") == "a/__ds"
