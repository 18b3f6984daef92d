"""Values of entities, and what a column has to say about them."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from pyspark_headwater.pipelines.columns import ColumnType

NAMES: Final = ("n", "N", "name", "key", "value", "_value", "a b", "a.b", "ü", "")
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
_fields = _scalars | st.lists(st.integers(0, 3), max_size=2) | st.just({"x": 1.5})
entities = st.dictionaries(st.sampled_from(NAMES), _fields, max_size=4) | _scalars
"""Mostly objects."""


def says_the_same(value: Any, found: Any, kind: ColumnType) -> bool:
    """Whether a column of that type holds what a field of the JSON holds."""
    if value is None:
        return found is None
    if kind == "string":
        return bool(found == value if isinstance(value, str) else json.loads(found) == value)
    return type(found) is {"long": int, "double": float, "boolean": bool}[kind] and found == value
