"""There is a page about every error code, and errors lead to theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from headwater.client import Headwater, StreamNotFound
from headwater.http.error_pages import TITLES, explanations
from headwater.testing import RunningServer, running_server
from tests.docs.markdown import DOCS, Page, code_spans

PAGE = Page(DOCS / "reference" / "errors.md")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


def test_every_explanation_says_when_and_what_to_do() -> None:
    assert set(explanations()) == set(TITLES)
    for codes in explanations().values():
        for code, one in codes.items():
            assert one.status, code
            assert re.search(r"[.:)`]$", one.when), code
            assert one.remedy.endswith("."), code


@pytest.mark.parametrize("contract", [name for name in TITLES if name != "streams"])
def test_codes_of_other_contracts_are_those_of_their_references(contract: str) -> None:
    table = Page(DOCS / "reference" / f"{contract}.md").table("Errors")
    listed = {(code_spans(row[0])[0], int(row[1])) for row in table}
    codes = explanations()[contract].items()
    assert listed == {(code, status) for code, one in codes for status in one.status}


def test_the_reference_has_a_heading_for_each() -> None:
    headings = re.findall(r"^### `(\w+)`$", PAGE.text, flags=re.MULTILINE)
    assert headings == [code for codes in explanations().values() for code in codes]


def test_the_server_has_a_page_for_each(server: RunningServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        listed = client.get("/errors/").text.split()
        assert set(listed) == {f"/errors/{c}" for codes in explanations().values() for c in codes}
        for address in listed:
            page = client.get(address)
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/plain; charset=utf-8"
            assert page.text.startswith(f"{address.removeprefix('/errors/')}\n")
            assert "What to do:" in page.text
            assert "](" not in page.text
        for nonsense in (
            "/errors/nothing",
            "/errors/a/b",
            "/errors/%00%ff",
            "/errors/" + "x" * 999,
        ):
            assert client.get(nonsense).status_code == 404


REFUSED = [
    ("GET", "/v1/stream/nothing", 404),
    ("POST", "/v1/stream/nothing", 404),
    ("GET", "/v1/stream/a?offset=nonsense", 400),
    ("PATCH", "/v1/streams", 405),
    ("GET", "/nowhere", 404),
    ("PUT", "/v1/stream/__ds/subscriptions/s", 400),
    ("GET", "/v1/stream/nothing/_groups/g", 404),
]


@pytest.mark.parametrize("method, path, status", REFUSED)
def test_an_error_leads_to_its_page(
    server: RunningServer, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, server.url + path)
    assert answer.status_code == status
    link = answer.links["help"]["url"]
    assert link == f"/errors/{answer.json()['error']['code']}"
    assert httpx.get(server.url + link).status_code == 200


def test_the_client_knows_the_page(server: RunningServer) -> None:
    with Headwater(server.url) as client, pytest.raises(StreamNotFound) as caught:
        client.stream("nothing").read_json()
    assert caught.value.help_url == f"{server.url}/errors/stream_not_found"
