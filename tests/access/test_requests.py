"""Which request needs which permission."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from tests.access.guests import Guest, House, refusal
from tests.http.wire import Reply, Wire, request_bytes

JSON = {"Content-Type": "application/json"}
GROUP = {"consumer": "c", "max": 1}


@dataclass(frozen=True)
class Case:
    """A request, as it is made for the stream S, the other stream T and the group g of S."""

    method: str
    target: str
    needs: str
    """Which of the guests below may do it, by their letters."""
    headers: dict[str, str] = field(default_factory=dict)
    body: object = None


# r: reads S.  w: writes S.  b: reads and writes S.  g: reads S, writes its group.
# d: deletes S.  a: admin of S.  t: all of it with S and T.  o: admin of everything.
GUESTS = {
    "r": {"read": ["S"]},
    "w": {"write": ["S"]},
    "b": {"read": ["S"], "write": ["S"]},
    "g": {"read": ["S"], "write": ["S/_groups/g"]},
    "d": {"delete": ["S"]},
    "a": {"admin": ["S"]},
    "t": {"read": ["S", "T"], "write": ["S", "T"], "delete": ["S", "T"]},
    "o": {"admin": ["**"]},
}
READERS, WRITERS, USERS = "rbgato", "wbato", "bgato"
CASES = [
    Case("GET", "/v1/stream/S", READERS),
    Case("GET", "/v1/stream/S?offset=now", READERS),
    Case("HEAD", "/v1/stream/S", "rwbgato"),
    Case("GET", "/v1/stream/S/_details", READERS),
    Case("HEAD", "/v1/stream/S/_details", READERS),
    Case("GET", "/v1/stream/S/_position?last=1", READERS),
    Case("POST", "/v1/stream/S/_details", "rwbgato"),
    Case("PUT", "/v1/stream/S", WRITERS, JSON),
    Case("POST", "/v1/stream/S", WRITERS, JSON, {"n": 1}),
    Case("PATCH", "/v1/stream/S", "rwbgato"),
    Case("GET", "/v1/stream/S/_profile", READERS),
    Case("POST", "/v1/stream/S/_profile", WRITERS, {}, {"kind": "generic"}),
    Case("GET", "/v1/stream/S/touch/meta", READERS),
    Case("POST", "/v1/stream/S/touch/wait", READERS, {}, {"cursor": "now", "keys": ["a"]}),
    Case("POST", "/v1/stream/S/touch/templates/activate", READERS, {}, {"templates": []}),
    Case(
        "PUT",
        "/v1/stream/S",
        "ato",
        JSON | {"Stream-Config-Version": "1", "Stream-Retention-Seconds": "60"},
    ),
    Case("PUT", "/v1/stream/S", "ato", JSON | {"Stream-Config-Version": "1", "Stream-TTL": "60"}),
    Case("PUT", "/v1/stream/S", WRITERS, JSON | {"Stream-Config-Version": "1"}),
    Case("DELETE", "/v1/stream/T", "to"),
    Case("DELETE", "/v1/stream/S/_snapshots/latest", "dato"),
    Case("PUT", "/v1/stream/S", "to", JSON | {"Stream-Forked-From": "/v1/stream/T"}),
    Case("PUT", "/v1/stream/T", "to", JSON | {"Stream-Forked-From": "/v1/stream/S"}),
    Case("PUT", "/v1/stream/S", "to", JSON | {"Stream-Forked-From": "T"}),
    Case("GET", "/v1/stream/S/_groups", READERS),
    Case("GET", "/v1/stream/S/_groups/g", READERS),
    Case("PUT", "/v1/stream/S/_groups/g", USERS, {}, {}),
    Case("PUT", "/v1/stream/S/_groups/h", "bato", {}, {}),
    Case("PUT", "/v1/stream/S/_groups/g", "to", {}, {"max_deliveries": 1, "dead_letter": "T"}),
    Case("POST", "/v1/stream/S/_groups/g/fetch", USERS, {}, GROUP),
    Case("POST", "/v1/stream/S/_groups/g/ack", USERS, {}, {"receipts": ["x"]}),
    Case("POST", "/v1/stream/S/_groups/g/nack", USERS, {}, {"receipts": ["x"]}),
    Case("POST", "/v1/stream/S/_groups/g/extend", USERS, {}, {"receipts": ["x"], "ms": 5}),
    Case("POST", "/v1/stream/S/_groups/g/reject", USERS, {}, {"receipts": ["x"]}),
    Case("POST", "/v1/stream/S/_groups/g/seek", USERS, {}, {"to": "first"}),
    Case("POST", "/v1/stream/S/_groups/g/pause", USERS),
    Case("POST", "/v1/stream/S/_groups/g/resume", USERS),
    Case("DELETE", "/v1/stream/S/_groups/g", USERS),
    Case("GET", "/v1/stream/S/_groups/g?live=sse", USERS),
    Case("GET", "/v1/stream/S/_groups/g?%6Cive=sse", USERS),
    Case("POST", "/v1/transaction", WRITERS, {}, {"publish": [{"stream": "S", "value": 1}]}),
    Case(
        "POST",
        "/v1/transaction",
        "to",
        {},
        {"publish": [{"stream": "S", "value": 1}, {"stream": "T", "value": 1}]},
    ),
    Case(
        "POST",
        "/v1/transaction",
        USERS,
        {},
        {"ack": {"stream": "S", "group": "g", "receipts": ["x"]}},
    ),
    Case(
        "POST",
        "/v1/transaction",
        "to",
        {},
        {
            "ack": {"stream": "S", "group": "g", "receipts": ["x"]},
            "publish": [{"stream": "T", "value": 1}],
        },
    ),
    Case("POST", "/v1/presign", READERS, {}, {"stream": "S", "expires_s": 60}),
    Case("GET", "/v1/streams", "rwbgdato"),
    Case("GET", "/v1/stream/__ds/subscriptions/x", "o"),
    Case("PUT", "/v1/stream/__ds/subscriptions/x", "o", {}, {}),
    Case("GET", "/v1/stream/S/_snapshots", READERS),
    Case("GET", "/v1/stream/S/_bulk", READERS),
    Case("GET", "/v1/stream/S/_segments", READERS),
    Case("GET", "/metrics", "o"),
    Case("GET", "/anything", "o"),
]


class Scene:
    """Two streams and a group, made anew for each request that may change them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.names = {"S": house.fresh("S"), "T": house.fresh("T")}
        owner = house.owner
        for name in self.names.values():
            assert owner.put(name).status == 201
        assert owner.json("PUT", f"/v1/stream/{self.names['S']}/_groups/g", {}).status == 201

    def real(self, text: str) -> str:
        return "/".join(self.names.get(word, word) for word in text.split("/"))

    def guest(self, letter: str) -> Guest:
        grants = {
            permission: [self.real(pattern) for pattern in patterns]
            for permission, patterns in GUESTS[letter].items()
        }
        return self.house.guest(**grants)

    def ask(self, guest: Guest, case: Case) -> Reply:
        path, mark, query = case.target.partition("?")
        headers = {name: self.real(value) for name, value in case.headers.items()}
        body = b"" if case.body is None else json.dumps(self._real_body(case.body)).encode()
        return guest.send(case.method, self.real(path) + mark + query, headers, body)

    def _real_body(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self._real_body(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._real_body(item) for item in value]
        return self.names.get(value, value) if isinstance(value, str) else value


def named(case: Case) -> str:
    return f"{case.method} {case.target} {case.headers.get('Stream-Forked-From', '')}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_who_may(house: House, case: Case) -> None:
    """Everyone who may gets an answer of another kind, everyone else the same refusal."""
    scene = Scene(house)
    refused = ""
    for letter in GUESTS:
        reply = scene.ask(scene.guest(letter), case)
        if reply.status == 403 and case.method == "HEAD":
            refused += letter
        elif reply.status == 403:
            assert refusal(reply) == (403, "forbidden")
            refused += letter
        else:
            assert reply.status not in (401, 500), reply
    assert refused == "".join(letter for letter in GUESTS if letter not in case.needs)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_nobody_does_anything_without_a_token(house: House, case: Case) -> None:
    reply = Scene(house).ask(house.stranger, case)
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"] == 'Bearer realm="headwater"'


@pytest.mark.parametrize("target", ["/", "/healthz", "/readyz"])
def test_what_is_open_to_everyone(house: House, target: str) -> None:
    assert house.stranger.send("GET", target).status == 200


def test_a_preflight_needs_no_token(house: House) -> None:
    reply = house.stranger.send("OPTIONS", "/v1/stream/x", {"Origin": "https://app.example"})
    assert reply.status == 204
    assert "Authorization" in reply.headers["Access-Control-Allow-Headers"]


def test_a_token_without_grants_may_nothing(house: House) -> None:
    guest = Guest(house.server.port, house.token())
    assert refusal(guest.get("a")) == (403, "forbidden")
    assert guest.names() == []


BAD = [
    "",
    "Bearer",
    "Bearer ",
    "Basic dTpw",
    "Bearer x",
    "Bearer hw_x",
    "bearer \xe4",
    "hw_",
    "a b c",
]


@pytest.mark.parametrize("value", BAD)
def test_what_is_no_token(house: House, value: str) -> None:
    reply = house.stranger.send("GET", "/v1/streams", {"Authorization": value})
    assert refusal(reply) == (401, "unauthorized")
    assert "invalid_token" in reply.headers["WWW-Authenticate"]


def test_the_scheme_is_compared_without_case(house: House) -> None:
    headers = {"Authorization": f"bEARER {house.owner.token}"}
    assert house.stranger.send("GET", "/v1/streams", headers).status == 200


@pytest.mark.parametrize("framing", ["length", "chunked", "continue"])
def test_the_body_of_a_stranger_is_not_read(house: House, framing: str) -> None:
    """The answer comes although nothing of the body was sent, and the connection ends."""
    headers = {
        "length": {"Content-Length": "1000000"},
        "chunked": {"Transfer-Encoding": "chunked"},
        "continue": {"Content-Length": "1000000", "Expect": "100-continue"},
    }[framing]
    for token in (None, "forged"):
        guest = Guest(house.server.port, token)
        with Wire(house.server.port) as wire:
            wire.send(request_bytes("POST", "/v1/stream/a", guest.headers(headers)))
            assert refusal(wire.reply()) == (401, "unauthorized")
            assert wire.is_at_end()


def test_shared_caches_keep_nothing(house: House) -> None:
    path = house.fresh()
    owner = house.owner
    owner.put(path, {"Stream-Closed": "true"})
    cached = owner.get(path).headers["Cache-Control"]
    assert cached.startswith("private,")
    assert "public" not in cached


# ── The list ─────────────────────────────────────────────────────────────────────────────────


def test_the_list_holds_what_the_caller_may_read(house: House) -> None:
    base = house.fresh("list")
    owner = house.owner
    for name in ("a/1", "a/2", "a.3", "b/1", "b/2/x", "c"):
        assert owner.put(f"{base}/{name}").status == 201
    guest = house.guest(
        read=[f"{base}/b/*", f"{base}/c"], write=[f"{base}/a.3"], admin=[f"{base}/a/**"]
    )
    shown = [f"{base}/{name}" for name in ("a/1", "a/2", "b/1", "c")]
    assert guest.names() == shown
    assert guest.names(f"prefix={base}/a") == shown[:2]
    assert guest.names(f"prefix={base}/a/1") == shown[:1]
    assert guest.names("prefix=zzz") == []
    assert guest.names(f"after={base}/a/2") == shown[2:]


def test_pages_of_the_list_tell_no_other_names(house: House) -> None:
    base = house.fresh("pages")
    owner = house.owner
    for number in range(8):
        owner.put(f"{base}/{number}/{'mine' if number % 3 == 0 else 'theirs'}")
    guest = house.guest(read=[f"{base}/*/mine"])
    found: list[str] = []
    after = ""
    while True:
        reply = guest.send("GET", f"/v1/streams?limit=1&after={after}")
        assert b"theirs" not in reply.body
        page = json.loads(reply.body)
        found += [stream["name"] for stream in page["streams"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert found == [f"{base}/{number}/mine" for number in (0, 3, 6)]


def test_a_fork_hides_a_source_that_the_caller_may_not_read(house: House) -> None:
    source, fork = house.fresh(), house.fresh()
    owner = house.owner
    owner.put(source)
    assert owner.put(fork, {"Stream-Forked-From": source}).status == 201
    details = house.guest(read=[fork]).get(f"{fork}/_details")
    assert json.loads(details.body)["forked_from"] is None
    assert source.encode() not in details.body
    assert json.loads(owner.get(f"{fork}/_details").body)["forked_from"] == source
