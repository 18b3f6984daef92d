"""No resource can be reached whose permission nobody has thought about."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from headwater.core.access import Caller, Credential, Grants, parse_grants
from headwater.core.errors import Forbidden
from headwater.core.limits import Limits
from headwater.core.paths import CONTROL_NAMES, CONTROL_ROOT
from headwater.http import places
from headwater.http.access import rules
from headwater.http.access.gate import Gate
from headwater.http.access.identity import Identity
from headwater.http.access.keyring import Keyring
from headwater.http.access.tokens import TokenPolicy, Tokens
from headwater.http.app import App
from headwater.http.beats import Heartbeat
from headwater.http.messages import Request
from headwater.http.places import locate
from headwater.service.clock import wall_clock_ms
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.store.memory.engine import MemoryEngine
from tests.docs.markdown import HTTP_REFERENCE, Page, code_spans


@pytest.fixture
async def app() -> AsyncIterator[App]:
    log = await Log.start(MemoryEngine(), Limits())
    groups = await Groups.start(log)
    identity = Identity(Keyring(), Tokens([], TokenPolicy()), b"s" * 32)
    gate = Gate(identity, None, wall_clock_ms)
    live = Live(log)
    subscriptions = await Subscriptions.start(log, Webhooks(Limits()))
    yield App(
        log,
        Feeds(log),
        groups,
        live,
        subscriptions,
        heartbeat=Heartbeat(60),
        long_poll_timeout_ms=1000,
        gate=gate,
    )
    await subscriptions.stop()
    groups.stop()
    live.release()
    await live.stop()
    await log.stop()


async def test_every_resource_has_its_permission_declared(app: App) -> None:
    declared = {*rules.RULES, *rules.PUBLIC}
    assert set(app.resources) - declared == set(), "add them to headwater.http.access.rules"
    assert declared - set(app.resources) == set(), "there are no such resources"


async def test_every_documented_resource_is_a_declared_one(app: App) -> None:
    for row in Page(HTTP_REFERENCE).table("Resources"):
        (shown,) = code_spans(row[0])
        target = re.sub(r"\{path\}", "some/stream", shown.rstrip("…"))
        for method in row[1].split(", "):
            kind = locate(method, target.encode()).kind
            assert kind in app.resources, target
            assert kind in rules.RULES or kind in rules.PUBLIC, target


def caller(**grants: list[str]) -> Caller:
    return Caller("c", parse_grants(grants) if grants else Grants(), Credential())


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "LINK"])
@pytest.mark.parametrize("target", ["/new", "/v1/new", "/v1/stream/__ds/new", "/v1/stream", "//"])
def test_what_is_not_declared_needs_admin(method: str, target: str) -> None:
    request = Request(method, target.encode(), b"", {})
    place = locate(method, target.encode())
    if place.kind == places.STREAM:
        pytest.fail("a PUT below a reserved name is a stream's") if method != "PUT" else None
        return
    assert not rules.is_public(request, place)
    with pytest.raises(Forbidden):
        rules.permit(request, place, caller(read=["**"], write=["**"], admin=["*", "a/**"]))
    rules.permit(request, place, caller(admin=["**"]))


@pytest.mark.parametrize("name", sorted(CONTROL_NAMES))
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_control_names_never_pass_for_streams(name: str, method: str) -> None:
    for target in (f"/v1/stream/a/b/{name}", f"/v1/stream/a/b/{name.replace('_', '%5F')}"):
        place = locate(method, target.encode())
        assert (place.kind, place.path) == (name, "a/b")


def test_pipelines_are_seen_by_admins_and_reported_by_anyone() -> None:
    place = locate("GET", b"/v1/pipelines")
    rules.permit(Request("POST", b"/v1/pipelines", b"", {}), place, caller(read=["a"]))
    rules.permit(Request("GET", b"/v1/pipelines", b"", {}), place, caller(admin=["**"]))
    with pytest.raises(Forbidden):
        rules.permit(Request("GET", b"/v1/pipelines", b"", {}), place, caller(read=["**"]))


def test_subscriptions_are_for_admins_but_for_those_with_tokens_of_their_own() -> None:
    def public(method: str, rest: str) -> bool:
        target = f"/v1/stream/{CONTROL_ROOT}/{rest}".encode()
        return rules.is_public(Request(method, target, b"", {}), locate(method, target))

    assert public("GET", "jwks.json")
    assert public("POST", "subscriptions/s/callback")
    assert public("POST", "subscriptions/s/ack")
    assert public("POST", "subscriptions/s/release")
    assert not public("POST", "subscriptions/s/claim")
    assert not public("POST", "subscriptions/s/streams")
    assert not public("GET", "subscriptions/s")
    assert not public("PUT", "subscriptions/s")
    assert not public("DELETE", "subscriptions/s")
    assert not public("POST", "jwks.json")
    assert not public("GET", "subscriptions/s/callback")
    assert not public("POST", "subscriptions/s/t/ack")
