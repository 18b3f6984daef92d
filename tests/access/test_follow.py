"""Following several streams shows only those that the caller may read."""

from __future__ import annotations

from tests.access.guests import House


def test_what_a_caller_may_not_read_is_refused_and_the_rest_goes_on(house: House) -> None:
    base = house.fresh("follow")
    for name in ("mine", "theirs"):
        house.owner.put(f"{base}/{name}", {"Content-Type": "text/plain", "Stream-Closed": "true"})
    guest = house.guest(read=[f"{base}/mine"])
    streams = {f"{base}/{name}": "-1" for name in ("mine", "theirs", "nothing")}
    reply = guest.json("POST", "/v1/follow", {"streams": streams})
    assert reply.status == 200
    events = reply.body.decode()
    assert events.count("event: failed") == events.count('"code":"forbidden"') == 2
    assert f'{{"stream":"{base}/mine"' in events
    assert "streamClosed" in events


def test_a_stranger_follows_nothing(house: House) -> None:
    assert house.stranger.json("POST", "/v1/follow", {"streams": {"a": "-1"}}).status == 401
