"""/openapi.json says what the server does: the routes, the errors, the headers, the answers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate

from headwater.core.errors import StreamError
from headwater.core.subscriptions import errors as subscription_errors
from headwater.http import openapi
from headwater.http.access.gate import Gate
from headwater.http.access.identity import Identity
from headwater.http.access.keyring import Keyring
from headwater.http.access.tokens import TokenPolicy, Tokens
from headwater.http.api import OPERATIONS, headers, schemas
from headwater.http.api.model import status_of
from headwater.http.app import App
from headwater.http.beats import Heartbeat
from headwater.http.groups import GroupResource
from headwater.http.headers import ALLOWED_REQUEST_HEADERS, EXPOSED_RESPONSE_HEADERS
from headwater.http.places import route_of
from headwater.http.streams import StreamResource
from headwater.http.subscriptions import SubscriptionResource
from headwater.http.touch import TouchResource
from headwater.http.transactions import ProducerPart, PublishPart, TransactionBody
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.store.memory.engine import MemoryEngine
from tests.docs.markdown import HTTP_REFERENCE, Page, code_spans
from tests.docs.test_http_reference import plain_errors, refusals
from tests.docs.test_http_reference import status_of as status_by_class
from tests.http.client import JSON, Client
from tests.support.server import ServerProcess

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")
PATHS = sorted({operation.path for operation in OPERATIONS})


def methods_of(path: str) -> set[str]:
    return {operation.method for operation in OPERATIONS if operation.path == path}


def test_it_is_valid_openapi() -> None:
    document = openapi.describe()
    assert document["openapi"].startswith("3.1")
    validate(document)
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))


def test_it_is_served(server: ServerProcess) -> None:
    answer = httpx.get(f"{server.url}/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == json.loads(openapi.document())


# ── The routes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def app() -> Any:
    log = await Log.start(MemoryEngine())
    groups, live = await Groups.start(log), Live(log)
    subscriptions = await Subscriptions.start(log)
    identity = Identity(Keyring(), Tokens([], TokenPolicy()), b"s" * 32)
    gate = Gate(identity, None, log.clock)
    yield App(
        log,
        Feeds(log),
        groups,
        live,
        subscriptions,
        heartbeat=Heartbeat(1),
        long_poll_timeout_ms=100,
        gate=gate,
    )
    groups.stop()
    await live.stop()
    await subscriptions.stop()
    await log.stop()


async def test_every_route_of_the_dispatch_is_described(app: App) -> None:
    """From the tables that requests are routed by."""
    stream, reserved = "/v1/stream/{path}", "/v1/stream/__ds"
    routes = {route_of(kind) for kind in app.resources}
    groups: GroupResource = app._groups
    group = f"{stream}/_groups/{{group}}"
    below_groups = {group, *(f"{group}/{name}" for name in groups._actions)}
    touch: TouchResource = app._touch
    below_touch = {f"{stream}/touch/{name}" for name in touch._routes}
    subscriptions: SubscriptionResource = app._subscriptions
    subscription = f"{reserved}/subscriptions/{{subscription}}"
    below_reserved = {
        f"{reserved}/jwks.json",
        f"{reserved}/subscriptions",
        subscription,
        *(f"{subscription}/{name}" for name in subscriptions._actions),
        f"{subscription}/streams/{{path}}",
    }
    # These answer nothing by themselves, only what is below them does.
    routes -= {f"{stream}/touch", reserved}
    one_snapshot = {f"{stream}/_snapshots/{{offset}}"}
    assert set(PATHS) == routes | below_groups | below_touch | below_reserved | one_snapshot
    streams: StreamResource = app._streams
    assert methods_of("/v1/stream/{path}") == streams.methods


# A server without access control has no such resource.
ALWAYS_THERE = [path for path in PATHS if path != "/v1/presign"]


@pytest.mark.parametrize("path", ALWAYS_THERE)
def test_the_methods_are_those_that_the_server_knows(server: ServerProcess, path: str) -> None:
    """A described method is never 405. Any other is, with an Allow header that agrees."""
    client = Client(server)
    stream = client.create(JSON)
    target = path.replace("{path}", stream).replace("{group}", "g").replace("{subscription}", "s")
    described = methods_of(path)
    for method in METHODS:
        reply = client.send(method, target, JSON, b"{}")
        if method in described:
            assert reply.status != 405, method
        elif method == "PUT" and reply.status == 400:
            # A PUT wants to create a stream of this name, and that is not allowed.
            assert reply.status == status_of("invalid_path")
        else:
            assert reply.status == 405, method
            allowed = {name.strip() for name in reply.headers["Allow"].split(",")}
            assert allowed - {"OPTIONS", "HEAD"} == described - {"HEAD"}
    assert client.send("OPTIONS", target).status == 204


FAMILIES = (
    *("/v1/stream/{path}/_groups", "/v1/stream/{path}/_snapshots"),
    *("/v1/stream/{path}/touch/", "/v1/stream/__ds/"),
)


def test_the_table_of_resources_agrees() -> None:
    documented = {code_spans(row[0])[0]: set(row[1].split(", ")) for row in resources()}
    described: dict[str, set[str]] = {}
    for path in PATHS:
        # These have a page of their own, and one line here.
        short = next((f"{root}…" for root in FAMILIES if path.startswith(root)), path)
        described.setdefault(short, set()).update(methods_of(path))
    assert documented == described


def resources() -> list[list[str]]:
    return Page(HTTP_REFERENCE).table("Resources")


# ── Names ────────────────────────────────────────────────────────────────────────────────────


def test_every_error_can_happen_somewhere() -> None:
    """Codes are those of the error classes, and each belongs to an operation."""
    general = {"error", "conflict", "publish_refused", "method_not_allowed"}
    described = {
        (code, status)
        for operation in OPERATIONS
        for status, codes in operation.codes.items()
        for code in codes
    }
    elsewhere = {pair for operation in OPERATIONS for pair in operation.elsewhere.items()}
    of_subscriptions = {(kind.code, status_by_class(kind)) for kind in subscription_refusals()}
    known = {*refusals(), *plain_errors(), *of_subscriptions, *elsewhere}
    assert described == {(code, status) for code, status in known if code not in general}


def subscription_refusals() -> list[type[StreamError]]:
    kinds = [kind for kind in vars(subscription_errors).values() if isinstance(kind, type)]
    own = [kind for kind in kinds if kind.__module__ == subscription_errors.__name__]
    return [kind for kind in own if issubclass(kind, StreamError)]


def test_every_header_is_described() -> None:
    assert set(ALLOWED_REQUEST_HEADERS) <= set(headers.REQUEST)
    assert set(EXPOSED_RESPONSE_HEADERS) == set(headers.RESPONSE)
    used = {p.name for operation in OPERATIONS for p in operation.headers}
    assert set(headers.REQUEST) - used == {"Authorization", "X-Request-Id"}
    sent = {name for o in OPERATIONS for answer in o.answers.values() for name in answer.headers}
    of_errors = {"Retry-After", "Producer-Expected-Seq", "Producer-Received-Seq", "X-Request-Id"}
    assert set(headers.RESPONSE) - sent == of_errors


def test_every_query_parameter_of_the_reference_is_described() -> None:
    rows = Page(HTTP_REFERENCE).table("Query parameters")
    documented = {name for row in rows for name in code_spans(row[0])}
    described = {
        parameter.name
        for operation in OPERATIONS
        if not operation.path.startswith(FAMILIES)
        for parameter in operation.query
    }
    assert documented == described


def test_bodies_of_transactions_are_those_that_are_parsed() -> None:
    shapes = schemas.components()
    for kind in (TransactionBody, PublishPart, ProducerPart):
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert set(shapes[kind.__name__]["properties"]) == fields


def test_what_is_listed_has_the_fields_that_are_described(server: ServerProcess) -> None:
    client = Client(server)
    path = client.create(JSON)
    shapes = schemas.components()
    details = json.loads(client.send("GET", f"/v1/stream/{path}/_details").body)
    assert set(details) == set(shapes["StreamDetails"]["properties"])
    page = json.loads(client.send("GET", f"/v1/streams?prefix={path}").body)
    assert set(page["streams"][0]) == set(shapes["Stream"]["properties"])
    client.post(path, b"{}", JSON)
    plan = json.loads(client.send("GET", f"/v1/stream/{path}/_segments").body)
    assert set(plan) == set(shapes["Ranges"]["properties"])
    of_range = shapes["Ranges"]["properties"]["ranges"]["items"]["properties"]
    assert set(plan["ranges"][0]) == set(of_range)
    profile = b'{"profile": {"kind": "state-protocol", "touch": {"enabled": true}}}'
    live = client.create(JSON)
    assert client.send("POST", f"/v1/stream/{live}/_profile", JSON, profile).status == 200
    meta = json.loads(client.send("GET", f"/v1/stream/{live}/touch/meta").body)
    assert set(meta) == set(shapes["LiveMeta"]["properties"])
