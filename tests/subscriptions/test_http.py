"""Subscriptions over HTTP, on both engines."""

from __future__ import annotations

from threading import Event
from typing import Any

import httpx
import pytest

from tests.subscriptions.api import JSON, Api, code, eventually, fresh
from tests.subscriptions.conftest import StartReceiver
from tests.subscriptions.receiver import DONE, DOWN, PATIENCE_S, TAKEN, Answer, Received

HOOK = {"url": "http://127.0.0.1:9/hook"}


# ── Creating ─────────────────────────────────────────────────────────────────────────────────


def test_the_same_again_is_confirmed_and_something_else_refused(api: Api) -> None:
    name, config = fresh("sub"), {"type": "webhook", "webhook": HOOK, "streams": ["b", "a"]}
    assert api.put(name, **config).status_code == 201
    again = config | {"streams": ["/a", "b", "a/"], "lease_ttl_ms": 30_000}
    assert api.put(name, **again).status_code == 200
    for change in (
        {"streams": ["a"]},
        {"lease_ttl_ms": 1_000},
        {"webhook": {"url": "http://127.0.0.1:10/"}},
        {"description": "other"},
        {"pattern": "a/*"},
    ):
        assert code(api.put(name, **(config | change))) == (409, "SUBSCRIPTION_ALREADY_EXISTS")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"type": "webhook", "webhook": HOOK},
        {"type": "webhook", "webhook": HOOK, "streams": []},
        {"type": "webhook", "pattern": "a/*"},
        {"type": "webhook", "webhook": {}, "pattern": "a"},
        {"type": "webhook", "webhook": HOOK, "pattern": "a", "wake_stream": "w"},
        {"type": "pull-wake", "pattern": "a/*"},
        {"type": "pull-wake", "pattern": "a", "wake_stream": "w", "webhook": HOOK},
        {"type": "pull-wake", "streams": ["w"], "wake_stream": "w"},
        {"type": "email", "pattern": "a/*"},
        {"type": "webhook", "webhook": HOOK, "pattern": "a//b"},
        {"type": "webhook", "webhook": HOOK, "pattern": "__ds/*"},
        {"type": "webhook", "webhook": HOOK, "pattern": 7},
        {"type": "webhook", "webhook": HOOK, "streams": ["../a"]},
        {"type": "webhook", "webhook": HOOK, "streams": "a"},
        {"type": "webhook", "webhook": HOOK, "streams": ["a"] * 1001},
        {"type": "webhook", "webhook": HOOK, "pattern": "a", "lease_ttl_ms": 999},
        {"type": "webhook", "webhook": HOOK, "pattern": "a", "lease_ttl_ms": 600_001},
        {"type": "webhook", "webhook": HOOK, "pattern": "a", "lease_ttl_ms": 1.5},
        {"type": "webhook", "webhook": HOOK, "pattern": "a", "description": "x" * 1025},
    ],
)
def test_settings_that_make_no_sense(api: Api, config: dict[str, Any]) -> None:
    name = fresh("sub")
    assert code(api.put(name, **config)) == (400, "INVALID_REQUEST")
    assert api.http.get(f"/__ds/subscriptions/{name}").status_code == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("action", ["", "/streams", "/claim", "/release"])
def test_bodies_that_are_no_objects(api: Api, body: bytes, action: str) -> None:
    name, _ = api.pull(fresh())
    method = "POST" if action else "PUT"
    target = f"/__ds/subscriptions/{name}{action}"
    headers = JSON | {"Authorization": "Bearer x"}
    answer = api.http.request(method, target, content=body, headers=headers)
    assert code(answer) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/hook",
        "http://example.com/",
        "https://10.0.0.1/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[fd00::1]/",
        "https://0/",
        "https://2130706433/",
        "https://0x7f.1/",
        "http://[::1]/",
        "http://0.0.0.0/",
        "gopher://example.com/",
        "nonsense",
        "",
    ],
)
def test_webhooks_that_lead_inside_are_refused(api: Api, url: str) -> None:
    answer = api.put(fresh("sub"), type="webhook", pattern="a", webhook={"url": url})
    assert code(answer) == (400, "WEBHOOK_URL_REJECTED")


@pytest.mark.parametrize("name", ["_x", "a b", "é", "x" * 257, "a/b", "a?b"])
def test_names_that_are_none(api: Api, name: str) -> None:
    assert api.put(name, type="webhook", pattern="a", webhook=HOOK).status_code == 400


def test_what_a_subscription_looks_like(api: Api) -> None:
    stream = fresh("seen/")
    api.create(stream, 1)
    name = api.webhook(HOOK["url"], "seen/*", streams=["named"], description="for tests")
    fields = api.get(name)
    links = {link["path"]: link for link in fields.pop("streams")}
    assert links["named"] == {
        "path": "named",
        "link_type": "explicit",
        "acked_offset": "-1",
        "tail_offset": "0" * 16 + "_" + "0" * 16,
        "has_pending": False,
    }
    assert links[stream]["acked_offset"] == links[stream]["tail_offset"]
    assert (links[stream]["link_type"], links[stream]["has_pending"]) == ("glob", False)
    signing = fields.pop("webhook")["signing"]
    assert signing["jwks_url"] == f"{api.url}/v1/stream/__ds/jwks.json"
    assert fields.pop("created_at").endswith("Z")
    assert fields == {
        "id": name,
        "subscription_id": name,
        "type": "webhook",
        "pattern": "seen/*",
        "lease_ttl_ms": 30_000,
        "description": "for tests",
        "status": "active",
        "generation": 0,
        "state": "idle",
        "failures": 0,
        "streams_total": len(links),
        "streams_pending": 0,
    }


def test_the_list_goes_page_by_page(api: Api) -> None:
    prefix = fresh("page-")
    for letter in "cab":
        api.put(f"{prefix}{letter}", type="webhook", pattern="x", webhook=HOOK)
    query = {"prefix": prefix, "limit": "2"}
    page = api.http.get("/__ds/subscriptions", params=query).json()
    assert [each["id"] for each in page["subscriptions"]] == [f"{prefix}a", f"{prefix}b"]
    last = api.http.get("/__ds/subscriptions", params=query | {"after": page["next"]}).json()
    assert [each["id"] for each in last["subscriptions"]] == [f"{prefix}c"]
    assert last["next"] is None
    for limit in ("0", "x", "1001"):
        assert api.http.get("/__ds/subscriptions", params={"limit": limit}).status_code == 400


def test_the_key_set(api: Api) -> None:
    answer = api.http.get("/__ds/jwks.json")
    assert answer.headers["Content-Type"] == "application/jwk-set+json"
    assert "max-age=300" in answer.headers["Cache-Control"]
    (key,) = answer.json()["keys"]
    assert (key["kty"], key["crv"], key["alg"]) == ("OKP", "Ed25519", "EdDSA")
    assert key["kid"].startswith("ds_")
    assert set(key) == {"kty", "crv", "x", "kid", "use", "alg"}


@pytest.mark.parametrize(
    "method, target, status",
    [
        ("POST", "/__ds/jwks.json", 405),
        ("PUT", "/__ds/subscriptions", 405),
        ("POST", "/__ds/subscriptions/none", 405),
        ("GET", "/__ds/subscriptions/none/claim", 405),
        ("POST", "/__ds/subscriptions/none/streams/a", 405),
        ("GET", "/__ds/subscriptions/none/what", 404),
        ("GET", "/__ds/jwks.json/x", 404),
        ("GET", "/__ds/", 400),
        ("GET", "/__ds/else", 400),
        ("GET", "/__ds/subscriptions/%ff", 400),
        ("GET", "/__ds/subscriptions/none", 404),
        ("DELETE", "/__ds/subscriptions/none", 404),
        ("DELETE", "/__ds/subscriptions/none/streams/a", 404),
        ("PUT", "/__ds", 400),
    ],
)
def test_resources_and_methods(api: Api, method: str, target: str, status: int) -> None:
    answer = api.http.request(method, target, headers=JSON)
    assert answer.status_code == status
    assert answer.json()["error"]["code"]
    assert (status == 405) == ("Allow" in answer.headers)


def test_what_is_not_there_is_not_found_by_any_action(api: Api) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "streams": {"streams": ["a"]},
        "claim": {"worker": "me"},
        "callback": {"wake_id": "w", "generation": 1},
        "ack": {"wake_id": "w", "generation": 1},
        "release": {"wake_id": "w", "generation": 1},
    }
    for action, body in bodies.items():
        answer = api.call("none", action, "token", **body)
        if action in ("streams", "claim"):
            assert code(answer) == (404, "SUBSCRIPTION_NOT_FOUND")
        else:
            assert code(answer) == (401, "TOKEN_INVALID")


def test_whether_a_subscription_is_there_is_told_only_to_those_with_its_token(
    api: Api, wake: Received
) -> None:
    """Callers of these need no key: a token of a wake is all they have."""
    hooked, (pulled, _) = wake.body["subscription_id"], api.pull(fresh("x"))
    bodies: list[dict[str, Any]] = [{}, {"wake_id": 1}, {"wake_id": "w", "generation": 1}]
    for action in ("callback", "ack", "release"):
        for token in (None, "token", wake.body["callback_token"] + "x"):
            for body in bodies:
                answers = [api.call(n, action, token, **body) for n in (hooked, pulled, "none")]
                assert len({(a.status_code, a.content) for a in answers}) == 1


# ── Links ────────────────────────────────────────────────────────────────────────────────────


def test_streams_are_added_and_removed(api: Api) -> None:
    there, later = fresh("link-"), fresh("link-")
    api.create(there, 1)
    name = api.webhook(HOOK["url"], streams=["first/one"])
    assert api.call(name, "streams", streams=[there, f"/{later}/"]).status_code == 204
    assert set(api.links(name)) == {"first/one", there, later}
    for path in ("first%2Fone", later, "unknown"):
        answer = api.http.delete(f"/__ds/subscriptions/{name}/streams/{path}")
        assert answer.status_code == 204
    assert set(api.links(name)) == {there}
    assert code(api.call(name, "streams", streams=[])) == (400, "INVALID_REQUEST")
    assert code(api.call(name, "streams", streams=["a b"])) == (400, "INVALID_REQUEST")


def test_a_stream_linked_both_ways_is_explicit(api: Api) -> None:
    base = fresh("both")
    api.create(f"{base}/a", 1)
    name = api.webhook(HOOK["url"], f"{base}/*", streams=[f"{base}/a"])
    assert api.links(name)[f"{base}/a"]["link_type"] == "explicit"
    api.http.delete(f"/__ds/subscriptions/{name}/streams/{base}/a")
    assert api.links(name)[f"{base}/a"]["link_type"] == "glob"


def test_the_wake_stream_cannot_be_linked(api: Api) -> None:
    name, wakes = api.pull(fresh("x"))
    assert code(api.call(name, "streams", streams=[wakes])) == (400, "INVALID_REQUEST")


# ── Webhooks ─────────────────────────────────────────────────────────────────────────────────


def test_a_wake_from_beginning_to_end(api: Api, receive: StartReceiver) -> None:
    base, receiver = fresh("wake"), receive()
    api.create(f"{base}/old", 1)
    name = api.webhook(receiver.url, f"{base}/*")
    api.create(f"{base}/new", 1, 2)
    wake = receiver.next()
    assert wake.pending == [f"{base}/new"]
    assert wake.streams[f"{base}/new"]["acked_offset"] == "-1"
    assert wake.body["callback_url"] == f"{api.url}/v1/stream/__ds/subscriptions/{name}/callback"
    eventually(lambda: api.get(name)["state"] == "leased")
    answer = api.callback(wake, acks=wake.acks(), done=True)
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "next_wake": False})
    assert (api.get(name)["state"], api.get(name)["generation"]) == ("idle", 1)
    api.append(f"{base}/old", 2)
    again = receiver.next()
    assert (again.body["generation"], again.pending) == (2, [f"{base}/old"])
    assert again.body["wake_id"] != wake.body["wake_id"]


def test_part_by_part(api: Api, receive: StartReceiver) -> None:
    path, receiver = fresh("part"), receive()
    api.create(path)
    name = api.webhook(receiver.url, streams=[path])
    first = api.append(path, 1)
    wake = receiver.next()
    second = api.append(path, 2)
    for offset, pending in ((first, True), (second, False)):
        acks = [{"stream": path, "offset": offset}]
        assert api.callback(wake, acks=acks).json() == {"ok": True, "next_wake": False}
        link = api.links(name)[path]
        assert (link["acked_offset"], link["has_pending"]) == (offset, pending)
    assert api.callback(wake, done=True).json()["next_wake"] is False


def test_what_is_left_wakes_at_once(api: Api, receive: StartReceiver) -> None:
    path, receiver = fresh("left"), receive()
    api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    wake = receiver.next()
    api.append(path, 2)
    assert api.callback(wake, acks=wake.acks(), done=True).json()["next_wake"] is True
    assert receiver.next().body["generation"] == 2


def test_one_wake_at_a_time(api: Api, receive: StartReceiver) -> None:
    base, receiver = fresh("one"), receive()
    api.webhook(receiver.url, f"{base}/**")
    for number in range(20):
        api.create(f"{base}/{number}", 1)
    receiver.next()
    assert receiver.quiet()


def test_a_slow_receiver_holds_up_neither_appends_nor_others(
    api: Api, receive: StartReceiver
) -> None:
    base, free = fresh("slow"), Event()

    def slowly(received: Received) -> Answer:
        free.wait(PATIENCE_S)
        return DONE

    receive_slowly, quick = receive(slowly), receive(DONE)
    api.webhook(receive_slowly.url, f"{base}/*")
    other = api.webhook(quick.url, f"{base}/*")
    try:
        for number in range(30):
            api.create(f"{base}/{number}", 1)
        eventually(lambda: api.get(other)["streams_pending"] == 0)
        assert receive_slowly.received.empty()
    finally:
        free.set()


def test_a_receiver_that_is_down_gets_the_same_wake_later(api: Api, receive: StartReceiver) -> None:
    path, receiver = fresh("down"), receive(DOWN)
    name = api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    first = receiver.next()
    eventually(lambda: api.get(name)["status"] == "failed")
    assert api.get(name)["next_attempt_at"] > 0
    receiver.answer = DONE
    second = receiver.next()
    assert second.body["wake_id"] == first.body["wake_id"]
    eventually(lambda: api.get(name)["streams_pending"] == 0)
    assert api.get(name)["status"] == "active"


def test_a_receiver_that_never_reports_is_woken_again(api: Api, receive: StartReceiver) -> None:
    path, receiver = fresh("mute"), receive()
    api.webhook(receiver.url, streams=[path], lease_ttl_ms=1_000)
    api.create(path, 1)
    first, second = receiver.next(), receiver.next()
    assert (first.body["generation"], second.body["generation"]) == (1, 2)
    assert code(api.callback(first, acks=first.acks(), done=True)) == (409, "FENCED")
    last = second
    # A slow machine may let that lease run out as well.
    while api.callback(last, acks=last.acks(), done=True).status_code == 409:
        last = receiver.next()
    assert api.get(last.body["subscription_id"])["streams_pending"] == 0


def test_a_receiver_that_redirects_inside(api: Api, receive: StartReceiver) -> None:
    """The address it redirects to is another receiver, which must not hear anything."""
    path, secret = fresh("redirect"), receive(DONE)
    receiver = receive((302, secret.url.encode()))
    name = api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    receiver.next()
    eventually(lambda: api.get(name)["failures"] >= 1)
    assert secret.quiet()


def test_a_receiver_that_says_too_much_is_not_done(api: Api, receive: StartReceiver) -> None:
    path, receiver = fresh("huge"), receive((200, b'{"done":true}' + b" " * 5_000_000))
    name = api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    receiver.next()
    eventually(lambda: api.get(name)["state"] == "leased")
    assert api.get(name)["streams_pending"] == 1


# ── Receivers that lie ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def wake(api: Api, receive: StartReceiver) -> Received:
    """A wake that is under way, for one stream."""
    path, receiver = fresh("lie"), receive()
    api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    received = receiver.next()
    eventually(lambda: api.get(received.body["subscription_id"])["state"] == "leased")
    return received


def untouched(api: Api, wake: Received) -> bool:
    fields = api.get(wake.body["subscription_id"])
    acked = {stream["acked_offset"] for stream in fields["streams"]}
    return (fields["generation"], fields["state"], acked) == (1, "leased", {"-1"})


@pytest.mark.parametrize(
    "changes", [{"generation": 0}, {"generation": 2}, {"wake_id": "w_other"}, {"wake_id": ""}]
)
def test_a_wrong_generation_or_wake_is_fenced(
    api: Api, wake: Received, changes: dict[str, Any]
) -> None:
    answer = api.callback(wake, acks=wake.acks(), done=True, **changes)
    assert code(answer) == (409, "FENCED")
    assert untouched(api, wake)


def test_a_token_of_someone_else_is_no_token(api: Api, wake: Received) -> None:
    token = wake.body["callback_token"]
    others = [None, "x", "1.", token[:-1], token + "A", token.swapcase(), f"2{token[1:]}"]
    for other in others:
        answer = api.callback(wake, token=other, acks=wake.acks(), done=True)
        assert code(answer) == (401, "TOKEN_INVALID")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert untouched(api, wake)


def test_a_token_is_good_for_one_subscription_only(
    api: Api, wake: Received, receive: StartReceiver
) -> None:
    path, receiver = fresh("other"), receive()
    api.webhook(receiver.url, streams=[path])
    api.create(path, 1)
    other = receiver.next()
    answer = api.callback(wake, token=other.body["callback_token"], done=True)
    assert code(answer) == (401, "TOKEN_INVALID")
    assert untouched(api, wake)


@pytest.mark.parametrize(
    "offset, status",
    [("-1", 400), ("now", 400), ("", 400), ("tail", 400), ("9" * 16 + "_" + "9" * 16, 409)],
)
def test_wrong_offsets_acknowledge_nothing(
    api: Api, wake: Received, offset: str, status: int
) -> None:
    acks = [*wake.acks(), {"stream": wake.pending[0], "offset": offset}]
    assert code(api.callback(wake, acks=acks, done=True)) == (status, "INVALID_OFFSET")
    assert untouched(api, wake)


def test_offsets_beyond_the_tail_or_of_other_streams_acknowledge_nothing(
    api: Api, wake: Received
) -> None:
    (ack,) = wake.acks()
    beyond = ack["offset"][:-4] + "9999"
    other = fresh("foreign")
    api.create(other, 1, 2, 3)
    foreign = {"stream": wake.pending[0], "offset": api.append(other, 4)}
    for bad in ({**ack, "offset": beyond}, {**ack, "stream": other}, foreign):
        answer = api.callback(wake, acks=[ack, bad], done=True)
        assert code(answer) == (409, "INVALID_OFFSET")
    assert untouched(api, wake)


@pytest.mark.parametrize(
    "changes",
    [
        {"acks": "all"},
        {"acks": [{"stream": "a"}]},
        {"acks": [{"stream": "a", "offset": 7}]},
        {"acks": [{"stream": "a", "offset": "x"}] * 1001},
        {"done": "yes"},
        {"generation": "1"},
        {"generation": -1},
        {"generation": 2**60},
        {"wake_id": None},
    ],
)
def test_reports_that_make_no_sense(api: Api, wake: Received, changes: dict[str, Any]) -> None:
    assert code(api.callback(wake, **changes)) == (400, "INVALID_REQUEST")
    assert untouched(api, wake)


def test_a_report_that_is_replayed_is_fenced_forever(api: Api, wake: Received) -> None:
    path = wake.pending[0]
    assert api.callback(wake, acks=wake.acks(), done=True).json()["next_wake"] is False
    for _ in range(3):
        assert code(api.callback(wake, acks=wake.acks(), done=True)) == (409, "FENCED")
        api.append(path, "more")
    name = wake.body["subscription_id"]
    eventually(lambda: api.get(name)["generation"] == 2)
    assert code(api.callback(wake, acks=wake.acks(), done=True)) == (409, "FENCED")
    assert api.links(name)[path]["acked_offset"] == wake.acks()[0]["offset"]


def test_after_deletion_nothing_moves(api: Api, wake: Received) -> None:
    name = wake.body["subscription_id"]
    config = {"type": "webhook", "webhook": HOOK, "streams": [wake.pending[0]]}
    assert api.http.delete(f"/__ds/subscriptions/{name}").status_code == 204
    assert code(api.callback(wake, done=True)) == (401, "TOKEN_INVALID")
    assert api.http.delete(f"/__ds/subscriptions/{name}").status_code == 404
    assert api.put(name, **config).status_code == 201
    assert code(api.callback(wake, acks=wake.acks(), done=True)) == (401, "TOKEN_INVALID")
    assert api.get(name)["generation"] == 0


# ── Pull-wake ────────────────────────────────────────────────────────────────────────────────


def test_a_wake_is_claimed_and_done(api: Api) -> None:
    base = fresh("pull")
    name, wakes = api.pull(f"{base}/*", lease_ttl_ms=60_000)
    api.create(f"{base}/a", 1)
    eventually(lambda: len(api.read(wakes)) == 1)
    (event,) = api.read(wakes)
    assert (event["type"], event["subscription_id"]) == ("wake", name)
    assert (event["stream"], event["generation"]) == (f"{base}/a", 1)
    assert isinstance(event["ts"], int)
    claimed = api.claim(name, "ann")
    assert (claimed["generation"], claimed["lease_ttl_ms"]) == (1, 60_000)
    busy = api.call(name, "claim", worker="bob")
    assert code(busy) == (409, "ALREADY_CLAIMED")
    assert busy.json()["error"]["current_holder"] == "ann"
    assert busy.json()["error"]["generation"] == 1
    assert api.get(name)["holder"] == "ann"
    (stream,) = claimed["streams"]
    ack = {"stream": stream["path"], "offset": stream["tail_offset"]}
    assert api.proven(name, "ack", claimed, acks=[ack]).json() == {"ok": True, "next_wake": False}
    done = api.proven(name, "ack", claimed, done=True)
    assert done.json() == {"ok": True, "next_wake": False}
    for action in ("ack", "release"):
        assert code(api.proven(name, action, claimed)) == (409, "FENCED")
    assert code(api.call(name, "claim", worker="bob")) == (409, "NO_PENDING_WORK")


def test_what_is_released_is_offered_again(api: Api) -> None:
    base = fresh("pull")
    name, wakes = api.pull(f"{base}/*")
    api.create(f"{base}/a", 1)
    claimed = api.claim(name)
    assert api.proven(name, "release", claimed).status_code == 204
    eventually(lambda: [event["generation"] for event in api.read(wakes)] == [1, 2])
    assert api.claim(name, "other")["generation"] == 2


def test_a_worker_that_dies_loses_its_claim(api: Api) -> None:
    base = fresh("pull")
    name, wakes = api.pull(f"{base}/*", lease_ttl_ms=1_000)
    api.create(f"{base}/a", 1)
    claimed = api.claim(name)
    eventually(lambda: len(api.read(wakes)) >= 2)
    assert code(api.proven(name, "ack", claimed)) == (409, "FENCED")
    assert api.claim(name)["generation"] >= 2


def test_the_wake_stream_is_made_if_it_is_not_there(api: Api) -> None:
    _, wakes = api.pull(fresh("x"))
    answer = api.http.head(f"/{wakes}")
    assert answer.headers["Content-Type"] == "application/json"


def test_the_wake_stream_must_hold_json(api: Api) -> None:
    text = fresh("text")
    api.http.put(f"/{text}", headers={"Content-Type": "text/plain"})
    answer = api.put(fresh("sub"), type="pull-wake", pattern="a", wake_stream=text)
    assert code(answer) == (400, "INVALID_REQUEST")


def test_each_kind_has_its_own_way_to_report(api: Api, wake: Received) -> None:
    hooked = wake.body["subscription_id"]
    pulled, _ = api.pull(fresh("x"))
    proof = {"wake_id": "w", "generation": 1}
    token = wake.body["callback_token"]
    assert code(api.call(hooked, "claim", worker="me")) == (400, "INVALID_REQUEST")
    assert code(api.call(hooked, "ack", token, **proof)) == (400, "INVALID_REQUEST")
    assert code(api.call(hooked, "release", token, **proof)) == (400, "INVALID_REQUEST")
    assert code(api.call(pulled, "callback", token, **proof)) == (401, "TOKEN_INVALID")


@pytest.mark.parametrize("worker", ["", "x" * 257, 7, None])
def test_workers_without_a_name(api: Api, worker: object) -> None:
    name, _ = api.pull(fresh("x"))
    assert code(api.call(name, "claim", worker=worker)) == (400, "INVALID_REQUEST")


# ── Streams that are special ─────────────────────────────────────────────────────────────────


def test_forks_expired_and_deleted_streams(api: Api, receive: StartReceiver) -> None:
    base, receiver = fresh("special"), receive(TAKEN)
    source = fresh("source")
    api.create(source, 1, 2)
    name = api.webhook(receiver.url, f"{base}/*", lease_ttl_ms=1_000)
    fork = api.http.put(f"/{base}/fork", headers={"Stream-Forked-From": f"/v1/stream/{source}"})
    assert fork.status_code == 201
    wake = receiver.next()
    assert wake.pending == [f"{base}/fork"]
    assert wake.streams[f"{base}/fork"]["tail_offset"] == fork.headers["Stream-Next-Offset"]
    api.http.delete(f"/{base}/fork")
    assert api.get(name)["streams_total"] == 0
    seen = 0
    for ttl_s in ("1", "30"):  # a slow machine may not see the first
        brief = f"/{base}/brief-{ttl_s}"
        api.http.put(brief, headers=JSON | {"Stream-TTL": ttl_s}, content="[1]")
        while not seen and api.http.head(brief).status_code == 200:
            seen = api.get(name)["streams_total"]
        eventually(lambda: api.get(name)["streams_total"] == 0)
        if seen:
            break
    assert seen == 1


def test_transactions_and_closing_wake_like_appends(api: Api, receive: StartReceiver) -> None:
    base, receiver = fresh("tx"), receive(DONE)
    api.create(f"{base}/a")
    api.webhook(receiver.url, f"{base}/*")
    publish = {"publish": [{"stream": f"{base}/a", "value": 1}]}
    answer = httpx.post(f"{api.url}/v1/transaction", json=publish)
    assert answer.status_code == 200, answer.text
    assert receiver.next().pending == [f"{base}/a"]
