"""When a server is one for development."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.settings import Settings
from tests.subscriptions.api import Api, code, fresh
from tests.support.server import ServerProcess

LOCAL = {"url": "http://127.0.0.1:9/"}


@pytest.mark.parametrize(
    "settings, allowed",
    [
        ({}, True),
        ({"host": "localhost"}, True),
        ({"host": "::1"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "streams.example.com"}, False),
        ({"public_url": "https://streams.example.com"}, False),
        ({"host": "0.0.0.0", "webhook_local": "allow"}, True),
        ({"webhook_local": "refuse"}, False),
    ],
)
def test_when_local_webhooks_are_allowed(settings: dict[str, str], allowed: bool) -> None:
    assert Settings(**settings).allows_local_webhooks is allowed  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def public() -> Iterator[Api]:
    arguments = ("--memory", "--public-url", "https://streams.example.com/", "--subscriptions-max")
    with ServerProcess(*arguments, "1") as server:
        api = Api(server.url)
        yield api
        api.http.close()


def test_a_server_with_a_public_url(public: Api) -> None:
    """Webhooks on its own machine are refused, and callbacks go to that address."""
    refused = public.put(fresh("sub"), type="webhook", pattern="a", webhook=LOCAL)
    assert code(refused) == (400, "WEBHOOK_URL_REJECTED")
    name = fresh("sub")
    public_hook = {"url": "https://93.184.216.34/"}
    made = public.put(name, type="webhook", pattern="a", webhook=public_hook).json()
    root = "https://streams.example.com/v1/stream/__ds"
    assert made["webhook"]["signing"]["jwks_url"] == f"{root}/jwks.json"
    more = public.put(fresh("sub"), type="webhook", pattern="a", webhook=public_hook)
    assert code(more) == (429, "TOO_MANY_SUBSCRIPTIONS")
    public.http.delete(f"/__ds/subscriptions/{name}")
