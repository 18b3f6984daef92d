"""Whatever is sent as a body, to whatever route takes one: an answer that says what is wrong.

Made from the table of routes, so a new route is in it without being named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from headwater.http.routes import ROUTES, Route, schemas
from tests.access.guests import Guest, House
from tests.http.client import JSON

DEEP: Final = 100_000
OFFSET: Final = "0000000000000000_0000000000000000"

# What a field of a body can be replaced with, as raw JSON.
VALUES: Final = {
    "null": b"null",
    "true": b"true",
    "minus": b"-1",
    "half": b"0.5",
    "beyond floats": b"1e400",
    "below floats": b"-1e400",
    "nearly nothing": b"1e-400",
    "many digits": b"1" * 5_000,
    "a word": b'"x"',
    "empty text": b'""',
    "long text": b'"%b"' % (b"x" * 300_000),
    "lone surrogate": b'"\\ud800"',
    "surrogates": b'"\\ud83d\\ude00"',
    "NUL": b'"\\u0000"',
    "empty list": b"[]",
    "empty object": b"{}",
    "list of anything": b'[null, 1, "x", [], {}, 1e400]',
    "long list": b"[%b1]" % (b"1," * 20_000),
    "deep list": b"[" * DEEP + b"]" * DEEP,
    "deep object": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "many keys": b"{%b}" % b",".join(b'"k%d":1' % n for n in range(5_000)),
}
# Whole bodies, besides each of the values.
BODIES: Final = VALUES | {
    "nothing": b"",
    "blank": b" ",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "not UTF-8": b'{"a":"\xff"}',
    "cut off": b'{"a":',
    "NaN": b'{"a":NaN}',
    "Infinity": b"[Infinity]",
    "twice": b"{}{}",
    "the same key": b'{"a":1,"a":2}',
    "only open": b"[" * DEEP,
    "binary": bytes(range(256)),
}
# Values that fit, so that one wrong field is what is found.
FITTING: Final[dict[str, object]] = {
    "consumer": "c",
    "receipts": ["r"],
    "ms": 1,
    "to": "first",
    "cursor": "now",
    "keys": ["0123456789abcdef"],
    "timeoutMs": 0,
    "templates": [],
    "type": "pull-wake",
    "pattern": "a/*",
    "wake_stream": "wakes",
    "streams": ["a"],
    "worker": "w",
    "wake_id": "w",
    "generation": 1,
    "stream": "s",
    "publish": [{"stream": "json", "value": 1}],
    "name": "n",
    "kind": "k",
    "batch": 1,
    "rows": 1,
    "rows_per_s": 1,
    "batch_ms": 1,
    "profile": {"kind": "generic"},
}


class Scene:
    """A server with one of everything, and who may do everything there."""

    def __init__(self, house: House) -> None:
        self.guest: Guest = house.guest(admin=["**"])
        put = self.guest.send
        pointer = {"Stream-Unique-Ids": "fail", "Stream-Id-Pointer": "/id"}
        profile = b'{"profile": {"kind": "state-protocol", "touch": {"enabled": true}}}'
        for path, headers in (("json", {}), ("unique", pointer), ("live", {})):
            assert put("PUT", f"/v1/stream/{path}", JSON | headers).status in (200, 201)
        assert put("POST", "/v1/stream/live/_profile", JSON, profile).status == 200
        for path in ("json", "live"):
            ordered = b'{"order_by": "/k"}' if path == "live" else b"{}"
            assert put("PUT", f"/v1/stream/{path}/_groups/g", JSON, ordered).status < 300, path

    def targets(self, route: Route) -> Iterator[str]:
        names = {"group": "g", "subscription": "s", "offset": OFFSET, "service": "notes"}
        streams = ("json", "unique", "live") if "{path}" in route.path else ("",)
        for stream in streams:
            yield route.path.format_map(names | {"path": stream})

    def check(self, route: Route, target: str, body: bytes, what: str) -> None:
        reply = self.guest.send(route.method, target, JSON, body)
        about = f"{route.method} {target}: {what}: {reply.status} {reply.body[:300]!r}"
        assert reply.status < 500, about
        if reply.status >= 400:
            error: dict[str, Any] = json.loads(reply.body)["error"]
            # Some contracts write their codes in capitals.
            codes = {code.lower() for code in route.codes.get(reply.status, [])}
            assert error["code"].lower() in codes, about
            assert error["message"], about


WITH_BODY: Final = [route for route in ROUTES if route.body]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """With access control, which some routes are not there without."""
    with House.open(tmp_path_factory.mktemp("house"), "memory") as house:
        yield Scene(house)


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_whole_bodies(scene: Scene, route: Route) -> None:
    for target in scene.targets(route):
        for what, body in BODIES.items():
            scene.check(route, target, body, what)


def fields_of(route: Route) -> set[str]:
    fields: set[str] = set()
    for shape in route.body.values():
        name = str(shape.get("$ref", "")).rpartition("/")[2]
        fields |= set(schemas.components().get(name, shape).get("properties", {}))
    return fields


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_one_wrong_field(scene: Scene, route: Route) -> None:
    fields = fields_of(route)
    for field in sorted(fields):
        others = {name: FITTING[name] for name in fields & FITTING.keys() if name != field}
        begun = json.dumps(others).encode()[:-1] + (b"," if others else b"")
        for what, value in VALUES.items():
            body = b"%b%b:%b}" % (begun, json.dumps(field).encode(), value)
            scene.check(route, next(scene.targets(route)), body, f"{field} is {what}")


@pytest.mark.parametrize("what", VALUES)
def test_parts_of_a_message_that_the_server_looks_at(scene: Scene, what: str) -> None:
    """Ids of unique messages, the keys that groups order by, records of the State Protocol."""
    value = VALUES[what]
    append = next(r for r in ROUTES if (r.method, r.path) == ("POST", "/v1/stream/{path}"))
    record = b'{"type":"t","key":%b,"value":%b,"headers":{"operation":"insert"}}'
    headers = b'{"type":"t","key":"k","value":1,"headers":%b}'
    for path, body in (
        ("unique", b'{"id":%b}' % value),
        ("unique", b'{"id":"%b","x":%b}' % (what.encode(), value)),
        ("live", record % (value, b"1")),
        ("live", record % (b'"k"', value)),
        ("live", headers % value),
        ("live", headers % (b'{"operation":%b}' % value)),
        ("json", b'{"k":%b}' % value),
    ):
        scene.check(append, f"/v1/stream/{path}", body, what)
    fetch = next(r for r in ROUTES if r.path.endswith("/fetch"))
    for path in ("json", "live"):
        body = b'{"consumer":"c","max":1000}'
        scene.check(fetch, f"/v1/stream/{path}/_groups/g/fetch", body, "fetch")
