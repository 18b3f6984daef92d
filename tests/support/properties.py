"""What the property tests share: how many examples, and how to generate input.

No property here has a deadline: how fast a machine is says nothing about whether a rule holds.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_UNTIMED = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

THOROUGH = settings(_UNTIMED, max_examples=300)
"""For pure functions, where an example costs microseconds."""

NORMAL = settings(_UNTIMED, max_examples=60)
"""For whole scenarios."""

FEW = settings(_UNTIMED, max_examples=15)
"""For scenarios with files or threads."""


# ── JSON as people send it ───────────────────────────────────────────────────────────────────

_blanks = st.text(" \t\r\n", max_size=3)
_numbers = st.one_of(
    st.integers().map(str),
    st.integers(min_value=2**63, max_value=2**200).map(str),
    st.sampled_from(["0", "-0", "1.0", "-0.0", "1e5", "1E+05", "1.10", "6.02e-23", "1e400"]),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
_plain = st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=0x20)
_escapes = st.one_of(
    st.sampled_from([r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\ud83d\uDE00"]),
    st.integers(0, 0xD7FF).map(lambda point: f"\\u{point:04x}"),
    st.integers(0xE000, 0xFFFF).map(lambda point: f"\\u{point:04X}"),
)
_strings = st.lists(_plain | _escapes, max_size=6).map(lambda parts: f'"{"".join(parts)}"')
# Few different keys, so that objects often have duplicates.
_keys = st.sampled_from(['"a"', '"b"', r'"\u0061"', '""']) | _strings


@st.composite
def _containers(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    def padded(text: str) -> str:
        return draw(_blanks) + text + draw(_blanks)

    if draw(st.booleans()):
        items = [padded(item) for item in draw(st.lists(inner, max_size=4))]
        return f"[{','.join(items) or draw(_blanks)}]"
    pairs = draw(st.lists(st.tuples(_keys, inner), max_size=4))
    members = [f"{padded(key)}:{padded(value)}" for key, value in pairs]
    return f"{{{','.join(members) or draw(_blanks)}}}"


json_texts = st.recursive(
    st.sampled_from(["null", "true", "false"]) | _numbers | _strings, _containers, max_leaves=8
).map(str.encode)
"""One JSON value each, written in odd ways, without surrounding whitespace."""

json_blanks = _blanks.map(str.encode)
"""Whitespace that JSON allows between values."""
