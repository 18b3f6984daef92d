"""Content types: which are well formed and which are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.content_types import check_content_type, is_json, is_text, media_type
from headwater.core.errors import InvalidHeader
from tests.support.properties import THOROUGH

_TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12)
media_types = st.builds("{}/{}".format, _TOKEN, _TOKEN)
parameters = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(
    lambda text: f" ;{text}"
)


@THOROUGH
@given(media_types, parameters, st.booleans())
def test_case_and_parameters_make_no_difference(media: str, extra: str, upper: bool) -> None:
    variant = (media.upper() if upper else media) + extra
    assert check_content_type(variant) == variant
    assert media_type(variant) == media_type(media) == media.lower()
    assert is_json(variant) == is_json(media)
    assert is_text(variant) == is_text(media)


@pytest.mark.parametrize(
    "value", ["", "text", "/", "text/", "/plain", "a b/c", "text/plain/x", "tëxt/plain", "t/p x"]
)
def test_what_is_no_type_and_subtype_is_refused(value: str) -> None:
    with pytest.raises(InvalidHeader):
        check_content_type(value)


@THOROUGH
@given(media_types, st.characters(exclude_categories=[]).filter(lambda c: not " " <= c <= "~"))
def test_nothing_that_could_forge_a_header_gets_through(media: str, odd: str) -> None:
    """Parameters are echoed in responses: visible ASCII and blanks, nothing else."""
    if odd == "\t":
        return
    with pytest.raises(InvalidHeader):
        check_content_type(f"{media}; charset={odd}")


def test_a_content_type_is_bounded() -> None:
    assert check_content_type("text/plain;" + "x" * 245)
    with pytest.raises(InvalidHeader):
        check_content_type("text/plain;" + "x" * 246)


def test_json_and_text() -> None:
    assert is_json("Application/JSON; charset=utf-8")
    assert not is_json("application/json-seq")
    assert not is_json("application/vnd.x+json")
    assert is_text("text/event-stream")
    assert is_text("application/json")
    assert not is_text("application/octet-stream")
