"""/openapi.json says what the server does: the routes, the errors, the headers, the answers."""

from __future__ import annotations

import json

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate

from headwater.core.errors import StreamError
from headwater.core.responses import errors as response_errors
from headwater.core.subscriptions import errors as subscription_errors
from headwater.http import headers as header_names
from headwater.http.errors import status_of
from headwater.http.resources.transactions import ProducerPart, PublishPart, TransactionBody
from headwater.http.routes import ROUTES, headers, openapi, schemas
from headwater.http.routes.route import STATUS_BY_CODE
from tests.docs.markdown import HTTP_REFERENCE, Page, code_spans
from tests.docs.test_http_reference import plain_errors, refusals
from tests.http.client import JSON, Client
from tests.support.server import ServerProcess

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")
PATHS = sorted({route.path for route in ROUTES})


def methods_of(path: str) -> set[str]:
    return {route.method for route in ROUTES if route.path == path}


def test_it_is_valid_openapi() -> None:
    document = openapi.describe()
    assert document["openapi"].startswith("3.1")
    validate(document)
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))


def test_it_is_served(server: ServerProcess) -> None:
    answer = httpx.get(f"{server.url}/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == json.loads(openapi.document())


# ── The routes ───────────────────────────────────────────────────────────────────────────────


# A server without access control has no signed addresses, and one that allows no upstream has no
# durable responses.
ALWAYS_THERE = [path for path in PATHS if not path.startswith(("/v1/presign", "/v1/proxy"))]


@pytest.mark.parametrize("path", ALWAYS_THERE)
def test_the_methods_are_those_that_the_server_knows(server: ServerProcess, path: str) -> None:
    """A described method is never 405. Any other is, with an Allow header that agrees."""
    client = Client(server)
    stream = client.create(JSON)
    target = path.replace("{path}", stream).replace("{group}", "g").replace("{subscription}", "s")
    target = target.replace("{service}", "notes")
    described = methods_of(path)
    for method in METHODS:
        reply = client.send(method, target, JSON, b"{}")
        if method in described:
            assert reply.status != 405, method
        elif method == "PUT" and reply.status == 400:
            # A PUT wants to create a stream of this name, and that is not allowed.
            assert reply.status == STATUS_BY_CODE["invalid_path"]
        else:
            assert reply.status == 405, method
            allowed = {name.strip() for name in reply.headers["Allow"].split(",")}
            assert allowed - {"OPTIONS", "HEAD"} == described - {"HEAD"}
    assert client.send("OPTIONS", target).status == 204


FAMILIES = (
    *("/v1/stream/{path}/_groups", "/v1/stream/{path}/_snapshots"),
    *("/v1/stream/{path}/touch/", "/v1/stream/__ds/", "/v1/yjs/", "/v1/proxy"),
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
    """Codes are those of the error classes, and each belongs to an route."""
    general = {"error", "conflict", "publish_refused", "method_not_allowed"}
    described = {
        (code, status)
        for route in ROUTES
        for status, codes in route.codes.items()
        for code in codes
    }
    elsewhere = {pair for route in ROUTES for pair in route.elsewhere.items()}
    of_layers = {(kind.code, status_of(kind)) for kind in layer_refusals()}
    known = {*refusals(), *plain_errors(), *of_layers, *elsewhere}
    assert described == {(code, status) for code, status in known if code not in general}


def layer_refusals() -> list[type[StreamError]]:
    """The errors of subscriptions and of responses, which have codes of their own."""
    return [
        kind
        for module in (subscription_errors, response_errors)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, StreamError)
        and kind.__module__ == module.__name__
    ]


def test_every_header_is_described() -> None:
    parsed = vars(header_names).values()
    read = {name.decode() for name in parsed if isinstance(name, bytes)}
    assert read <= {name.lower() for name in headers.REQUEST}
    used = {p.name for route in ROUTES for p in route.headers}
    assert set(headers.REQUEST) - used == {"Authorization", "X-Request-Id"}
    sent = {name for o in ROUTES for answer in o.answers.values() for name in answer.headers}
    of_errors = {
        "Link",
        "Retry-After",
        "Producer-Expected-Seq",
        "Producer-Received-Seq",
        "X-Request-Id",
    }
    assert set(headers.RESPONSE) - sent == of_errors


def test_every_query_parameter_of_the_reference_is_described() -> None:
    rows = Page(HTTP_REFERENCE).table("Query parameters")
    documented = {name for row in rows for name in code_spans(row[0])}
    described = {
        parameter.name
        for route in ROUTES
        if not route.path.startswith(FAMILIES)
        for parameter in route.query
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
    gone = client.create(JSON)
    client.delete(gone)
    page = json.loads(client.send("GET", f"/v1/streams?deleted=true&prefix={gone}").body)
    assert set(page["streams"][0]) == set(shapes["DeletedStream"]["properties"])
    client.post(path, b"{}", JSON)
    plan = json.loads(client.send("GET", f"/v1/stream/{path}/_segments").body)
    assert set(plan) == set(shapes["Ranges"]["properties"])
    of_range = shapes["Ranges"]["properties"]["ranges"]["items"]["properties"]
    assert set(plan["ranges"][0]) == set(of_range)
    profile = b'{"profile": {"kind": "state-protocol", "touch": {"enabled": true}}}'
    live = client.create(JSON)
    assert client.send("POST", f"/v1/stream/{live}/_profile", JSON, profile).status == 200
    meta = json.loads(client.send("GET", f"/v1/stream/{live}/touch/meta?templates=true").body)
    assert set(meta) == set(shapes["LiveMeta"]["properties"])
