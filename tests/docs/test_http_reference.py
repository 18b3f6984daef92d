"""Every header and every error code is explained, and none that does not exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headwater.http
from headwater.core import errors
from headwater.core.paths import CONTROL_NAMES, CONTROL_ROOT
from headwater.http.error_pages import explanations
from headwater.http.errors import status_of
from headwater.http.routes import headers
from tests.docs.markdown import HTTP_REFERENCE, TUTORIAL, Page, code_spans

PAGE = Page(HTTP_REFERENCE)


# ── Headers ──────────────────────────────────────────────────────────────────────────────────


def first_cells(heading: str) -> set[str]:
    return {name for row in PAGE.table(heading) for name in code_spans(row[0])}


def test_every_request_header_is_there() -> None:
    assert set(headers.REQUEST) - first_cells("Request headers") == set()


def test_every_response_header_is_there() -> None:
    assert set(headers.RESPONSE) - first_cells("Response headers") == set()


def test_no_header_of_the_protocol_is_unknown() -> None:
    known = {*headers.REQUEST, *headers.RESPONSE}
    for page in (PAGE, Page(TUTORIAL)):
        used = set(re.findall(r"\b(?:Stream|Producer)-[A-Z][A-Za-z-]+", page.text))
        assert used - known == set(), page.path


def test_reserved_names_are_there() -> None:
    names = set(code_spans(PAGE.section("Paths and names")))
    assert {CONTROL_ROOT, *CONTROL_NAMES} <= names


# ── Errors ───────────────────────────────────────────────────────────────────────────────────


def refusals() -> Iterator[tuple[str, int]]:
    """The codes of the core, with the status that HTTP gives them."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.StreamError):
            yield value.code, status_of(value)


def plain_errors() -> Iterator[tuple[str, int]]:
    """The codes that only HTTP knows: status and code of each call of `plain_error`."""
    for path in sorted(Path(headwater.http.__path__[0]).glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == "plain_error":
                match node.args[:2]:
                    case [ast.Constant(value=int(status)), ast.Constant(value=str(code))]:
                        yield code, status


def documented() -> list[tuple[str, int]]:
    own = explanations()["streams"]
    return [(code, status) for code, one in own.items() for status in one.status]


def test_every_error_is_there_with_its_status_and_no_other() -> None:
    sent = {*refusals(), *plain_errors()}
    assert ("stream_not_found", 404) in sent
    assert ("method_not_allowed", 405) in sent
    assert set(documented()) == sent


def test_codes_outside_the_table_agree_with_it() -> None:
    """`409 config_conflict` in the text, `"code":"…"` in an example."""
    known = dict(documented())
    for status, code in re.findall(r"\b([45]\d\d) `([a-z_]+)`", PAGE.text):
        assert known.get(code) == int(status), code
    for code in re.findall(r'"code":"([a-z_]+)"', PAGE.text + Page(TUTORIAL).text):
        assert code in known
