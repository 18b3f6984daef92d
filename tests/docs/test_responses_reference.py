"""The reference of durable responses names every error, reason and limit."""

from __future__ import annotations

import re

from headwater.core.errors import StreamError
from headwater.core.responses import errors
from headwater.core.responses.about import Reason
from headwater.http.errors import status_of
from headwater.http.routes.responses import DIALECT
from headwater.settings import Settings
from tests.docs.markdown import DOCS, Page, code_spans

PAGE = Page(DOCS / "reference" / "responses.md")


def test_every_error_is_there_with_its_status_and_no_other() -> None:
    sent = {
        (value.code, status_of(value))
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, StreamError)
        and value.__module__ == errors.__name__
        and value is not errors.NotAuthenticated
    }
    # What no key and a wrong one are called here.
    sent |= {(name, 401) for name in (*DIALECT.keyless.values(), DIALECT.codes["unauthorized"][0])}
    rows = PAGE.table("Errors")
    assert {(code_spans(row[0])[0], int(row[1])) for row in rows} == sent
    assert all(all(row) for row in rows)


def test_codes_in_the_text_are_in_the_table() -> None:
    known = {(int(row[1]), code_spans(row[0])[0]) for row in PAGE.table("Errors")}
    found = re.findall(r"\b([45]\d\d) `([A-Z_]+)`", " ".join(PAGE.text.split()))
    assert found
    assert {(int(status), code) for status, code in found} <= known


def test_every_reason_is_there() -> None:
    assert [code_spans(row[0])[0] for row in PAGE.table("Read it")] == [r.value for r in Reason]


def test_every_setting_is_named_and_exists() -> None:
    names = set(re.findall(r"`(proxy_[a-z_]+)`", PAGE.text))
    assert names == {name for name in Settings.model_fields if name.startswith("proxy_")}


def test_the_defaults_are_those_of_the_settings() -> None:
    for name, default, _ in PAGE.table("Limits"):
        value = Settings.model_fields[code_spans(name)[0]].default
        shown = f"{value // 2**20} MiB" if value % 2**20 == 0 else f"{value:,}"
        assert default.split(" at ")[0] == shown, name
