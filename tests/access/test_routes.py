"""The table of routes: every route is answered, and none without the permission it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater.core.access import Caller, Credential, Grants, parse_grants
from headwater.core.errors import Forbidden, StreamError
from headwater.core.limits import Limits
from headwater.core.paths import CONTROL_NAMES, CONTROL_ROOT
from headwater.core.responses.policy import ResponsePolicy
from headwater.documents.documents import Documents
from headwater.documents.policy import Policy
from headwater.http.access import rules
from headwater.http.access.gate import Gate
from headwater.http.access.identity import Identity
from headwater.http.access.keyring import Keyring
from headwater.http.access.rules import Need
from headwater.http.access.tokens import TokenPolicy, Tokens
from headwater.http.app import App
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.messages import Request
from headwater.http.resources.assembly import resources_of
from headwater.http.routes import ROUTES
from headwater.http.routes.matching import RESOURCES, STREAM_RESOURCE, locate
from headwater.responses.responses import Responses
from headwater.service.clock import wall_clock_ms
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.store.memory.engine import MemoryEngine
from tests.docs.markdown import DOCS, Page, code_spans

FILLED = {"path": "a/b", "service": "s", "group": "g", "subscription": "s", "offset": "latest"} | {
    "id": "r" * 24
}


def filled(path: str) -> bytes:
    return path.format_map(FILLED).encode()


@pytest.fixture
async def app() -> AsyncIterator[App]:
    log = await Log.start(MemoryEngine(), Limits())
    groups = await Groups.start(log)
    identity = Identity(Keyring(), Tokens([], TokenPolicy()), b"s" * 32)
    gate = Gate(identity, None, wall_clock_ms)
    live = Live(log)
    subscriptions = await Subscriptions.start(log, Webhooks(Limits()))
    responses = Responses(log, ResponsePolicy(), identity.secret)
    resources = resources_of(
        log,
        Feeds(log),
        groups,
        live,
        subscriptions,
        heartbeat=Heartbeat(60),
        long_poll_timeout_ms=1000,
        identity=identity,
        responses=responses,
        documents=Documents(log, Policy()),
    )
    yield App(resources, gate=gate)
    await responses.stop()
    await subscriptions.stop()
    groups.stop()
    live.release()
    await live.stop()
    await log.stop()


# ── The table ────────────────────────────────────────────────────────────────────────────────


def test_no_two_routes_are_the_same() -> None:
    named = [(route.method, route.path) for route in ROUTES]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("path", sorted(RESOURCES))
def test_a_path_of_the_table_leads_to_its_resource(path: str) -> None:
    match = locate(filled(path))
    assert match.resource is RESOURCES[path]
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    assert list(match.args) == [FILLED[name] for name in names]


@pytest.mark.parametrize("path", sorted(p for p in RESOURCES if p.startswith("/v1/stream/")))
def test_the_alias_of_the_proxy_package_leads_there_too(path: str) -> None:
    target = filled(path)
    assert locate(target.replace(b"/v1/stream/", b"/v1/streams/")) == locate(target)


async def test_every_route_has_a_handler(app: App) -> None:
    for resource in RESOURCES.values():
        assert app._handlers[resource].keys() == resource.routes.keys()


async def test_without_a_key_nothing_but_public_routes_is_answered(app: App) -> None:
    """The request goes the whole way, so that no handler is reached around the gate."""
    for route in ROUTES:
        request = Request(route.method, filled(route.path), b"", {})
        answer = app(request)
        refused = getattr(answer, "status", None) == 401
        assert refused is not route.needs.is_public, (route.method, route.path)
        if hasattr(answer, "close") and not hasattr(answer, "status"):
            answer.close()


def needs(cell: str) -> str:
    return cell.replace("`", "")


def test_the_reference_says_what_every_route_needs() -> None:
    documented: dict[tuple[str, str], str] = {}
    for methods, resources, need in Page(DOCS / "reference" / "access.md").table("Requests"):
        for method in methods.split(", "):
            for span in code_spans(resources):
                path = span if span.startswith("/") else f"/v1/stream/{span}"
                assert (method, path) not in documented
                documented[method, path] = needs(need)
    wrong = []
    for route in ROUTES:
        path = route.path
        if (route.method, path) not in documented:
            families = [p for m, p in documented if m == route.method and p.endswith("…")]
            path = max((p for p in families if path.startswith(p[:-1])), key=len, default="")
        if documented.get((route.method, path)) != route.needs.value:
            wrong.append((route.method, route.path, route.needs.value))
    assert wrong == []
    known = {(route.method, route.path) for route in ROUTES}
    assert {pair for pair in documented if not pair[1].endswith("…")} <= known


def test_bodies_are_read_where_a_route_takes_one() -> None:
    def takes(method: str, target: str) -> bool:
        return locate(target.encode()).body_bytes_max(method, 1) > 0

    assert takes("POST", "/v1/stream/a")
    assert takes("PUT", "/v1/stream/a/_groups/g")
    assert takes("PUT", "/v1/stream/a/_snapshots/0000000000000000_0000000000000000")
    assert not takes("GET", "/v1/stream/a")
    assert not takes("DELETE", "/v1/stream/a")
    assert not takes("POST", "/healthz")
    assert not takes("POST", "/v1/stream/a/_details")
    assert not takes("POST", "/nowhere")
    assert not takes("OPTIONS", "/v1/transaction")


# ── Permissions ──────────────────────────────────────────────────────────────────────────────


def caller(**grants: list[str]) -> Caller:
    return Caller("c", parse_grants(grants) if grants else Grants(), Credential())


def permit(method: str, target: str, who: Caller) -> None:
    match = locate(target.encode())
    request = Request(method, target.encode(), b"", {})
    rules.permit(request, match.need(method), match.args, who)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "LINK"])
@pytest.mark.parametrize(
    "target",
    [
        "/new",
        "/v1/new",
        "/v1/stream/__ds/new",
        "/v1/stream/%5f_ds/subscriptions",
        "/v1/stream",
        "//",
    ],
)
def test_what_is_not_declared_needs_admin(method: str, target: str) -> None:
    assert locate(target.encode()).need(method) is Need.ADMIN
    with pytest.raises(Forbidden):
        permit(method, target, caller(read=["**"], write=["**"], admin=["*", "a/**"]))
    permit(method, target, caller(admin=["**"]))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_method_that_is_not_declared_needs_a_key_where_the_others_do(route: object) -> None:
    resource = RESOURCES[route.path]  # type: ignore[attr-defined]
    is_open = all(one.needs is Need.NOTHING for one in resource.routes.values())
    of_stream = resource.path.startswith("/v1/stream/{path}")
    expected = Need.READ_OR_WRITE if of_stream else Need.NOTHING if is_open else Need.KNOWN
    assert locate(filled(resource.path)).need("LINK") is expected


@pytest.mark.parametrize("name", sorted(CONTROL_NAMES))
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_control_names_never_pass_for_streams(name: str, method: str) -> None:
    for target in (f"/v1/stream/a/b/{name}", f"/v1/stream/a/b/{name.replace('_', '%5F')}"):
        match = locate(target.encode())
        assert match.resource.path == f"/v1/stream/{{path}}/{name}"
        assert match.args == ("a/b",)


@pytest.mark.parametrize(
    "target", ["a/_groups/g/new", "a/_details/x", "a/_groups/g/_details", "a/touch/new"]
)
def test_what_only_looks_like_a_control_resource_is_a_stream_or_refused(target: str) -> None:
    """Never something that its permission was not asked for."""
    match = locate(f"/v1/stream/{target}".encode())
    assert match.resource is STREAM_RESOURCE or match.args[0].startswith("a/_groups")


def test_pipelines_are_seen_by_admins_and_reported_by_anyone() -> None:
    permit("POST", "/v1/pipelines", caller(read=["a"]))
    permit("GET", "/v1/pipelines", caller(admin=["**"]))
    with pytest.raises(Forbidden):
        permit("GET", "/v1/pipelines", caller(read=["**"]))


def test_a_group_is_looked_at_by_readers_and_followed_by_members() -> None:
    match = locate(b"/v1/stream/a/_groups/g")
    reader = caller(read=["a"])
    for query, may in ((b"", True), (b"live=sse", False), (b"live=x", False)):
        request = Request("GET", b"/v1/stream/a/_groups/g", query, {})
        try:
            rules.permit(request, match.need("GET"), match.args, reader)
            assert may
        except StreamError:
            assert not may


def test_subscriptions_are_for_admins_but_for_those_with_tokens_of_their_own() -> None:
    def public(method: str, rest: str) -> bool:
        target = f"/v1/stream/{CONTROL_ROOT}/{rest}".encode()
        return locate(target).need(method).is_public

    assert public("GET", "jwks.json")
    assert public("POST", "subscriptions/s/callback")
    assert public("POST", "subscriptions/s/ack")
    assert public("POST", "subscriptions/s/release")
    assert not public("POST", "subscriptions/s/claim")
    assert not public("POST", "subscriptions/s/streams")
    assert not public("GET", "subscriptions/s")
    assert not public("PUT", "subscriptions/s")
    assert not public("DELETE", "subscriptions/s")
    assert not public("GET", "subscriptions/s/callback")
    assert not public("POST", "subscriptions/s/t/ack")
