"""A tenant tries everything on the streams of another, and learns nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from headwater.core.paths import CONTROL_NAMES
from tests.access.guests import Guest, House
from tests.http.wire import Reply

METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"]
ACTIONS = ["fetch", "ack", "nack", "extend", "reject", "seek", "pause", "resume", "nonsense"]
QUERIES = ["", "?offset=-1", "?offset=now", "?offset=-1&live=sse", "?offset=now&live=long-poll"]
JSON = {"Content-Type": "application/json"}


class Town:
    """Two tenants. One has streams, with data and groups; the other wants to know about them."""

    def __init__(self, house: House) -> None:
        base = house.fresh("town")
        self.mine, self.theirs = f"{base}/mine", f"{base}/theirs"
        self.there, self.missing = f"{self.theirs}/there", f"{self.theirs}/none!"
        assert len(self.there) == len(self.missing)
        owner = house.owner
        assert owner.put(self.there).status == 201
        assert owner.post(self.there, b'{"secret": "their-data"}').status == 204
        assert owner.json("PUT", f"/v1/stream/{self.there}/_groups/g", {}).status == 201
        assert owner.put(f"{self.mine}/own").status == 201
        assert owner.json("PUT", f"/v1/stream/{self.mine}/own/_groups/g", {}).status == 201
        self.owner = owner
        self.tenant = house.guest(
            read=[f"{self.mine}/**"], write=[f"{self.mine}/**"], admin=[f"{self.mine}/**"]
        )

    def state(self) -> tuple[object, ...]:
        """Everything about the other's stream that could have been changed."""
        reply = self.owner.get(self.there)
        details = json.loads(self.owner.get(f"{self.there}/_details").body)
        groups = json.loads(self.owner.get(f"{self.there}/_groups").body)["groups"]
        for group in groups:
            del group["oldest_unacked_age_ms"]  # grows by itself
        names = self.owner.names(f"prefix={self.theirs}")
        return reply.body, details, groups, names


@pytest.fixture
def town(house: House) -> Town:
    return Town(house)


def same(one: Reply, other: Reply) -> None:
    """Two answers that cannot be told apart."""
    assert one.status == other.status == 403
    assert one.body == other.body
    assert [name for name, _ in one.headers.fields] == [name for name, _ in other.headers.fields]
    varying = {"Date"}
    for (name, value), (_, other_value) in zip(
        one.headers.fields, other.headers.fields, strict=True
    ):
        assert value == other_value or name in varying


def targets(stream: str) -> Iterator[str]:
    """Everything that a request line can say about a stream."""
    root = f"/v1/stream/{stream}"
    yield from (root + query for query in QUERIES)
    yield f"http://elsewhere{root}"
    yield root.replace("theirs", "%74heirs")
    for name in sorted(CONTROL_NAMES):
        yield f"{root}/{name}"
    yield f"{root}/_position?last=1"
    yield f"{root}/_position?at=0"
    yield f"{root}/_groups/g"
    yield f"{root}/_groups/g?live=sse&consumer=c"
    yield from (f"{root}/_groups/g/{action}" for action in ACTIONS)
    for touch in (
        "touch/meta",
        "touch/wait",
        "touch/templates/activate",
        "_snapshots/1",
        "_segments/x",
    ):
        yield f"{root}/{touch}"


def test_every_route_and_method(town: Town) -> None:
    before = town.state()
    for method in METHODS:
        for there, missing in zip(targets(town.there), targets(town.missing), strict=True):
            replies = [
                town.tenant.send(method, target, JSON, b"{}" if method in ("PUT", "POST") else b"")
                for target in (there, missing)
            ]
            same(*replies)
            assert b"their" not in replies[0].body
    assert town.state() == before


def spellings(stream: str) -> Iterator[str]:
    """Names of a stream, as headers could give them."""
    yield stream
    yield f"/v1/stream/{stream}"
    yield stream.replace("theirs", "%74heirs")


def test_every_header_that_names_a_stream(town: Town) -> None:
    before = town.state()
    pairs = zip(spellings(town.there), spellings(town.missing), strict=True)
    for number, (there, missing) in enumerate(pairs):
        for offset in ({}, {"Stream-Fork-Offset": "-1"}, {"Stream-Fork-Offset": "x"}):
            replies = [
                town.tenant.put(f"{town.mine}/fork-{number}", {"Stream-Forked-From": name} | offset)
                for name in (there, missing)
            ]
            if replies[0].status == 400:
                # The headers do not make sense, which has nothing to do with the source.
                assert replies[0].body == replies[1].body
            else:
                same(*replies)
    assert town.state() == before
    assert [name for name in town.tenant.names() if "fork" in name] == []


def bodies(stream: str, own: str) -> Iterator[tuple[str, str, object]]:
    """Every body that names a stream, with the request it belongs to."""
    yield "PUT", f"/v1/stream/{own}/_groups/new", {"max_deliveries": 1, "dead_letter": stream}
    yield "PUT", f"/v1/stream/{own}/_groups/g", {"max_deliveries": 1, "dead_letter": stream}
    publish = {"stream": stream, "value": 1}
    mine = {"stream": own, "value": 1}
    for publishes in ([publish], [mine, publish], [publish, mine]):
        yield "POST", "/v1/transaction", {"publish": publishes}
    ack = {"stream": stream, "group": "g", "receipts": ["1-1-1"]}
    yield "POST", "/v1/transaction", {"ack": ack}
    yield "POST", "/v1/transaction", {"ack": ack, "publish": [mine]}
    yield "POST", "/v1/transaction", {"ack": {**ack, "group": "none"}}
    for part in ({"data": "AAAA"}, {"value": 1, "id": "x", "on_duplicate": "succeed"}):
        yield "POST", "/v1/transaction", {"publish": [{"stream": stream, **part}]}
    producer = {"id": "p", "epoch": 0, "seq": 0}
    yield "POST", "/v1/transaction", {"publish": [{**publish, "producer": producer}]}
    yield "POST", "/v1/presign", {"stream": stream, "expires_s": 60}


def test_every_body_that_names_a_stream(town: Town) -> None:
    own = f"{town.mine}/own"
    before = town.state(), town.owner.get(own).body, town.owner.get(f"{own}/_groups").body
    pairs = zip(bodies(town.there, own), bodies(town.missing, own), strict=True)
    for there, missing in pairs:
        same(town.tenant.json(*there), town.tenant.json(*missing))
    after = town.state(), town.owner.get(own).body, town.owner.get(f"{own}/_groups").body
    assert after == before


def test_json_that_says_two_things(town: Town) -> None:
    """Of a double key, what is checked must be what is done."""
    own, there = f"{town.mine}/own", town.there
    before = town.state()
    for first, second in itertools.permutations((own, there)):
        body = (
            f'{{"publish": [{{"stream": "{first}", "stream": "{second}", "value": 1}}]}}'
        ).encode()
        reply = town.tenant.send("POST", "/v1/transaction", JSON, body)
        assert reply.status == (200 if second == own else 403)
        lists = f'{{"publish": [{{"stream": "{first}", "value": 1}}], "publish": []}}'.encode()
        assert town.tenant.send("POST", "/v1/transaction", JSON, lists).status == 400
    assert town.state() == before


def test_the_list(town: Town) -> None:
    assert town.tenant.names() == [f"{town.mine}/own"]
    for query in (
        f"prefix={town.theirs}",
        f"prefix={town.there}",
        f"after={town.mine}/own",
        f"prefix={town.theirs}&limit=1",
    ):
        reply = town.tenant.send("GET", f"/v1/streams?{query}")
        assert json.loads(reply.body) == {"streams": [], "next": None}


def test_names_that_only_look_alike(house: House, town: Town) -> None:
    """What begins like the tenant's own names is not the tenant's."""
    for name in (
        town.mine,
        f"{town.mine}.x",
        f"{town.mine}2/x",
        f"{town.mine}%2e/x",
        f"x/{town.mine}/y",
    ):
        assert town.tenant.put(name).status == 403, name
    for name in (f"{town.mine}/../theirs/there", f"{town.mine}/%2e%2e/theirs/there"):
        assert town.tenant.get(name).status in (400, 403), name
    assert town.tenant.get(f"{town.mine}%2Ftheirs").status == 400


def test_a_group_path_cannot_reach_around_its_stream(town: Town) -> None:
    """The stream is what stands before the last `_groups`; a permission for a part is none."""
    inside = f"{town.there}/_groups/g"
    guest = Guest(town.tenant.port, town.tenant.token)
    for target in (f"{inside}/_groups/h", f"{town.mine}/own/_groups/../{town.there}/_groups/g"):
        assert guest.get(target).status in (400, 403, 404, 405), target
    assert guest.json("POST", f"/v1/stream/{inside}/fetch", {"consumer": "c"}).status == 403
