"""The reference of subscriptions names every error code, with its status, and every limit."""

from __future__ import annotations

import re

from headwater.core.errors import StreamError
from headwater.core.subscriptions import errors
from headwater.http.errors import status_of
from headwater.settings import Settings
from tests.docs.markdown import SUBSCRIPTIONS_REFERENCE, Page, code_spans

PAGE = Page(SUBSCRIPTIONS_REFERENCE)


def test_every_error_is_there_with_its_status_and_no_other() -> None:
    sent = {
        (value.code, status_of(value))
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, StreamError)
        and value.__module__ == errors.__name__
    }
    rows = PAGE.table("Errors")
    assert {(code_spans(row[0])[0], int(row[1])) for row in rows} == sent
    assert all(all(row) for row in rows)


def test_codes_in_the_text_are_in_the_table() -> None:
    known = {(int(row[1]), code_spans(row[0])[0]) for row in PAGE.table("Errors")}
    found = re.findall(r"\b([45]\d\d) `([A-Z_]+)`", " ".join(PAGE.text.split()))
    assert found
    assert {(int(status), code) for status, code in found} <= known


def test_every_setting_named_here_exists() -> None:
    names = set(re.findall(r"`((?:webhook|webhooks|public|subscriptions)_[a-z_]+)`", PAGE.text))
    assert names
    assert names <= set(Settings.model_fields)
