"""Callers can ask who they are and what they may do."""

from __future__ import annotations

import json
from typing import Any

from tests.access.guests import Guest, House
from tests.support.server import ServerProcess


def asked(guest: Guest, query: str = "") -> dict[str, Any]:
    reply = guest.send("GET", f"/v1/whoami{query}")
    assert reply.status == 200
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_a_key_learns_its_grants(house: House) -> None:
    guest = house.guest(read=["shop/**"], write=["shop/orders"])
    found = asked(guest)
    assert found["access"]
    assert not found["administers"]
    assert found["name"]
    assert found["grants"] == {"read": ["shop/**"], "write": ["shop/orders"]}
    over = asked(guest, "?stream=shop/orders")["stream"]
    assert over == {"path": "shop/orders", "read": True, "write": True, "delete": False}
    other = asked(guest, "?stream=elsewhere")["stream"]
    assert other == {"path": "elsewhere", "read": False, "write": False, "delete": False}
    assert guest.send("GET", "/v1/whoami?stream=a//b").status == 400


def test_an_administrator_may_do_everything(house: House) -> None:
    found = asked(house.owner, "?stream=anything")
    assert found["administers"]
    assert found["stream"]["delete"]


def test_a_stranger_is_told_nothing(house: House) -> None:
    assert house.stranger.send("GET", "/v1/whoami").status == 401


def test_an_open_server_says_so() -> None:
    import httpx

    with ServerProcess("--memory") as server:
        found = httpx.get(f"{server.url}/v1/whoami?stream=s").json()
    assert found["access"] is False
    assert found["grants"] is None
    assert found["stream"] == {"path": "s", "read": True, "write": True, "delete": True}


def test_groups_of_streams_that_a_caller_may_not_read_are_not_shown(house: House) -> None:
    base = house.fresh("groups")
    for name in ("mine", "theirs"):
        assert house.owner.put(f"{base}/{name}").status == 201
        made = house.owner.json("PUT", f"/v1/stream/{base}/{name}/_groups/g", {})
        assert made.status == 201
    guest = house.guest(read=[f"{base}/mine"])
    found, after = [], ""
    while after is not None:
        page = json.loads(guest.send("GET", f"/v1/groups?after={after}").body)
        found += [one["stream"] for one in page["streams"]]
        after = page["next"]
    assert found == [f"{base}/mine"]
