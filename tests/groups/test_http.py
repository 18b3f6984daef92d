"""Groups, unique ids and transactions over HTTP, on both engines."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.engines import SERVED, serving
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}


class Api:
    """The few calls that these tests make, with their answers taken apart."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)

    def put(self, path: str, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.put(f"/v1/stream/{path}", headers=JSON | named)

    def append(self, path: str, *messages: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(list(messages))
        return self.http.post(f"/v1/stream/{path}", headers=JSON | named, content=body)

    def read(self, path: str) -> list[Any]:
        values: list[Any] = self.http.get(f"/v1/stream/{path}").json()
        return values

    def letters(self, path: str, count: int = 1) -> list[Any]:
        """As many dead letters. They are written after the answer that made them."""
        deadline = time.monotonic() + 60
        while len(letters := self.read(path)) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return letters

    def group(self, path: str, name: str, **settings: Any) -> httpx.Response:
        return self.http.put(f"/v1/stream/{path}/_groups/{name}", json=settings)

    def call(self, path: str, name: str, action: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/v1/stream/{path}/_groups/{name}/{action}", json=body)

    def fetch(self, path: str, name: str, consumer: str = "me", **body: Any) -> list[Any]:
        answer = self.call(path, name, "fetch", consumer=consumer, **body)
        assert answer.status_code == 200, answer.text
        messages: list[Any] = answer.json()["messages"]
        return messages

    def keep(self, path: str, name: str, consumer: str = "me") -> str:
        """Fetch one message and extend its lease. A slow machine lets some run out before that."""
        while True:
            (receipt,) = receipts(self.fetch(path, name, consumer, wait_ms=20_000))
            extend = self.call(path, name, "extend", receipts=[receipt], ms=600_000)
            if extend.json()["extended"]:
                return receipt

    def ack(self, path: str, name: str, messages: list[Any]) -> list[Any]:
        """The values of those that were acknowledged in time."""
        stale = self.call(path, name, "ack", receipts=receipts(messages)).json()["stale"]
        return values([message for message in messages if message["receipt"] not in stale])

    def info(self, path: str, name: str) -> dict[str, Any]:
        info: dict[str, Any] = self.http.get(f"/v1/stream/{path}/_groups/{name}").json()
        return info

    def transact(self, **body: Any) -> httpx.Response:
        return self.http.post("/v1/transaction", json=body)


def receipts(messages: list[Any]) -> list[str]:
    return [message["receipt"] for message in messages]


def values(messages: list[Any]) -> list[Any]:
    return [message["value"] for message in messages]


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.fixture(scope="module", params=SERVED)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(request.param, tmp_path_factory.mktemp("groups")) as server:
        api = Api(server.url)
        yield api
        api.http.close()


@pytest.fixture
def jobs(api: Api, request: pytest.FixtureRequest) -> str:
    """A JSON stream of its own for every test."""
    name = f"jobs-{abs(hash(request.node.nodeid))}"
    assert api.put(name).status_code == 201
    return name


# ── Groups ───────────────────────────────────────────────────────────────────────────────────


def test_every_message_goes_to_one_member(api: Api, jobs: str) -> None:
    api.append(jobs, *range(10))
    assert api.group(jobs, "g").status_code == 201
    first = api.fetch(jobs, "g", "ann", max=6)
    second = api.fetch(jobs, "g", "bob", max=6)
    assert values(first + second) == list(range(10))
    assert api.fetch(jobs, "g", "cem", max=6) == []


def test_values_come_byte_for_byte(api: Api, jobs: str) -> None:
    text = '{"big": 12345678901234567890, "one": 1.0, "a": 1, "a": 2}'
    api.http.post(f"/v1/stream/{jobs}", headers=JSON, content=text)
    api.group(jobs, "g")
    answer = api.call(jobs, "g", "fetch", consumer="me")
    assert f'"value":{text}' in answer.text


def test_bytes_come_in_base64(api: Api, jobs: str) -> None:
    api.http.put(f"/v1/stream/{jobs}-text", headers=TEXT, content="hello")
    api.group(f"{jobs}-text", "g")
    (message,) = api.fetch(f"{jobs}-text", "g")
    assert base64.b64decode(message["data"]) == b"hello"


def test_what_is_acknowledged_is_done_and_what_is_not_comes_back(api: Api, jobs: str) -> None:
    api.append(jobs, "a", "b")
    api.group(jobs, "g", ack_timeout_ms=600_000)
    held = receipts(api.fetch(jobs, "g"))
    api.group(jobs, "g", ack_timeout_ms=300)
    assert values(api.fetch(jobs, "g")) == ["b"]
    assert api.call(jobs, "g", "ack", receipts=held).json() == {"acked": 1, "stale": []}
    (again,) = api.fetch(jobs, "g", max=2, wait_ms=20_000)
    assert (again["value"], again["deliveries"]) == ("b", 2)


def test_a_late_receipt_changes_nothing(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g", ack_timeout_ms=200)
    late = receipts(api.fetch(jobs, "g", "ann"))
    current = [api.keep(jobs, "g", "bob")]
    for action, extra in (("ack", {}), ("nack", {}), ("extend", {"ms": 1000}), ("reject", {})):
        assert api.call(jobs, "g", action, receipts=late, **extra).json()["stale"] == late
    assert api.call(jobs, "g", "ack", receipts=current).json()["acked"] == 1


def test_foreign_receipts_change_nothing(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g")
    api.group(jobs, "other")
    foreign = receipts(api.fetch(jobs, "other"))
    api.fetch(jobs, "g")
    answer = api.call(jobs, "g", "ack", receipts=[*foreign, "", "1.2", "x.y.z", "9" * 400])
    assert answer.json()["acked"] == 0
    assert len(answer.json()["stale"]) == 5


def test_max_in_flight_holds_for_the_whole_group(api: Api, jobs: str) -> None:
    api.append(jobs, *range(10))
    api.group(jobs, "g", max_in_flight=3)
    held = api.fetch(jobs, "g", "ann", max=2) + api.fetch(jobs, "g", "bob", max=5)
    assert values(held) == [0, 1, 2]
    assert api.fetch(jobs, "g", "cem", max=5) == []
    api.call(jobs, "g", "ack", receipts=receipts(held)[:1])
    assert values(api.fetch(jobs, "g", "cem", max=5)) == [3]


def test_a_delay_holds_up_no_other_message(api: Api, jobs: str) -> None:
    api.append(jobs, "slow", "quick")
    api.group(jobs, "g")
    (slow,) = api.fetch(jobs, "g")
    api.call(jobs, "g", "nack", receipts=[slow["receipt"]], delay_ms=600_000)
    (quick,) = api.fetch(jobs, "g", max=5)
    assert quick["value"] == "quick"
    api.call(jobs, "g", "nack", receipts=[quick["receipt"]], delay_ms=400)
    assert values(api.fetch(jobs, "g", max=5, wait_ms=20_000)) == ["quick"]


def test_a_nack_without_counting_does_not_count(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g", max_deliveries=2)
    for _ in range(4):
        (message,) = api.fetch(jobs, "g", wait_ms=20_000)
        assert message["deliveries"] == 1
        api.call(jobs, "g", "nack", receipts=[message["receipt"]], count=False)


def test_an_extended_lease_lasts(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g", ack_timeout_ms=300)
    kept = api.keep(jobs, "g", "ann")
    assert api.fetch(jobs, "g", "bob", wait_ms=800) == []
    assert api.call(jobs, "g", "ack", receipts=[kept]).json()["acked"] == 1


def test_dead_letters_carry_their_origin(api: Api, jobs: str) -> None:
    api.append(jobs, {"n": 1}, {"n": 2})
    api.group(jobs, "g", max_deliveries=2, dead_letter=f"{jobs}-dead")
    poison, rejected = api.fetch(jobs, "g", max=2)
    api.call(jobs, "g", "reject", receipts=[rejected["receipt"]])
    api.call(jobs, "g", "nack", receipts=[poison["receipt"]])
    (poison,) = api.fetch(jobs, "g", wait_ms=20_000)
    api.call(jobs, "g", "nack", receipts=[poison["receipt"]])
    assert api.fetch(jobs, "g", wait_ms=300) == []
    letters = sorted(api.letters(f"{jobs}-dead", 2), key=lambda letter: letter["value"]["n"])
    assert [letter["value"] for letter in letters] == [{"n": 1}, {"n": 2}]
    assert [letter["origin"]["reason"] for letter in letters] == ["max_deliveries", "rejected"]
    assert letters[0]["origin"] | {"offset": ""} == {
        "stream": jobs,
        "group": "g",
        "offset": "",
        "number": 0,
        "deliveries": 2,
        "reason": "max_deliveries",
        "time": poison["time"],
    }
    assert api.info(jobs, "g")["lag"] == 0


def test_messages_of_one_key_come_one_after_the_other(api: Api, jobs: str) -> None:
    api.append(jobs, *[{"k": k, "n": n} for n, k in enumerate("aabab")])
    api.group(jobs, "g", order_by="/k")
    seen: list[int] = []
    while messages := api.fetch(jobs, "g", max=5):
        keys = [message["value"]["k"] for message in messages]
        assert len(keys) == len(set(keys))
        seen += [message["value"]["n"] for message in messages]
        api.call(jobs, "g", "ack", receipts=receipts(messages))
    assert [n for n in seen if n in (0, 1, 3)] == [0, 1, 3]
    assert [n for n in seen if n in (2, 4)] == [2, 4]


def test_a_busy_key_does_not_starve_the_others(api: Api, jobs: str) -> None:
    api.append(jobs, *[{"k": "busy"}] * 50, {"k": "other"})
    api.group(jobs, "g", order_by="/k")
    assert values(api.fetch(jobs, "g")) == [{"k": "busy"}]
    assert values(api.fetch(jobs, "g", wait_ms=10_000)) == [{"k": "other"}]


def test_a_waiting_fetch_is_served_by_the_next_append(api: Api, jobs: str) -> None:
    api.group(jobs, "g")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.fetch, jobs, "g", wait_ms=20_000)
        api.append(jobs, "news")
        assert values(waiting.result()) == ["news"]


def test_a_fetch_acknowledges_first(api: Api, jobs: str) -> None:
    api.append(jobs, *({"k": 1, "n": n} for n in range(3)))
    api.group(jobs, "g", max_in_flight=1, order_by="/k")
    [first] = api.fetch(jobs, "g")
    # Neither the room nor the key would allow the next one before.
    answer = api.call(jobs, "g", "fetch", consumer="me", ack=[first["receipt"]]).json()
    assert values(answer["messages"]) == [{"k": 1, "n": 1}]
    assert (answer["acked"], answer["stale"], answer["lag"]) == (1, [], 2)
    assert api.call(jobs, "g", "ack", receipts=[first["receipt"]]).json()["acked"] == 0


def test_only_who_acknowledges_is_told_so(api: Api, jobs: str) -> None:
    api.group(jobs, "g")
    assert set(api.call(jobs, "g", "fetch", consumer="me").json()) == {"messages", "lag"}
    answer = api.call(jobs, "g", "fetch", consumer="me", ack=[]).json()
    assert answer == {"messages": [], "lag": 0, "acked": 0, "stale": []}


def test_stale_receipts_in_a_fetch_change_nothing(api: Api, jobs: str) -> None:
    api.append(jobs, "a", "b")
    api.group(jobs, "g")
    mine, other = api.fetch(jobs, "g", max=2)
    api.call(jobs, "g", "nack", receipts=[mine["receipt"]])
    late = [mine["receipt"], "nonsense"]
    answer = api.call(
        jobs, "g", "fetch", consumer="me", max=5, ack=[*late, other["receipt"]]
    ).json()
    assert (answer["acked"], answer["stale"]) == (1, late)
    assert [(m["value"], m["deliveries"]) for m in answer["messages"]] == [("a", 2)]


def test_what_a_waiting_fetch_acknowledged_holds_at_once(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g")
    [message] = api.fetch(jobs, "g")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            api.call, jobs, "g", "fetch", consumer="me", wait_ms=20_000, ack=[message["receipt"]]
        )
        while api.info(jobs, "g")["lag"]:
            assert not waiting.done()
        # A member that comes back with the receipt hears of its fate while the other waits.
        late = api.call(jobs, "g", "ack", receipts=[message["receipt"]]).json()
        assert late == {"acked": 0, "stale": [message["receipt"]]}
        assert not waiting.done()
        api.append(jobs, "b")
        answer = waiting.result(timeout=60).json()
    assert (values(answer["messages"]), answer["acked"]) == (["b"], 1)


def test_what_a_fetch_acknowledged_holds_though_its_member_hung_up(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    api.group(jobs, "g")
    [message] = api.fetch(jobs, "g")
    body = json.dumps({"consumer": "gone", "wait_ms": 20_000, "ack": [message["receipt"]]}).encode()
    with socket.create_connection((api.http.base_url.host, api.http.base_url.port or 80)) as gone:
        head = f"POST /v1/stream/{jobs}/_groups/g/fetch HTTP/1.1\r\nHost: localhost\r\n"
        gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    while api.info(jobs, "g")["lag"]:
        pass
    api.append(jobs, "b")
    assert values(api.fetch(jobs, "g", wait_ms=10_000)) == ["b"]


def test_groups_start_where_they_are_told(api: Api, jobs: str) -> None:
    offset = api.append(jobs, "old").headers["stream-next-offset"]
    api.append(jobs, "new")
    api.group(jobs, "latest", start="latest")
    api.group(jobs, "middle", start=offset)
    assert api.fetch(jobs, "latest") == []
    assert values(api.fetch(jobs, "middle", max=5)) == ["new"]
    inside = f"{offset[:17]}{int(offset[17:]) - 1:016}"
    api.group(jobs, "rounded", start=inside)
    assert values(api.fetch(jobs, "rounded", max=5)) == ["old", "new"]
    assert code(api.group(jobs, "bad", start="0" * 16 + "_" + "9" * 16)) == (400, "unknown_offset")
    assert code(api.group(jobs, "bad", start="soon")) == (400, "invalid_offset")


def test_groups_can_start_inside_an_append(api: Api, jobs: str) -> None:
    first = api.append(jobs, 0).headers["Stream-Next-Offset"]
    second = api.append(jobs, 1, 2, 3).headers["Stream-Next-Offset"]
    api.append(jobs, 4)
    places: dict[str, list[int]] = {
        f"{first}/2": [3, 4],
        f"{first}/3": [4],
        f"{second}/1": [],
        "-1/2": [2, 3, 4],
        "now": [],
    }
    for number, (place, expected) in enumerate(places.items()):
        name = f"g{number}"
        assert api.group(jobs, name, start=place).status_code == 201
        assert values(api.fetch(jobs, name, max=10)) == expected
        assert api.call(jobs, name, "seek", to=place).status_code == 204
        again = api.fetch(jobs, name, max=10)
        assert values(again) == expected
        assert api.info(jobs, name)["lag"] == len(expected)
        assert api.call(jobs, name, "seek", to=place).status_code == 204
        here = api.info(jobs, name)["position"]
        api.call(jobs, name, "seek", to="first")
        assert api.call(jobs, name, "seek", to=here).status_code == 204
        again = api.fetch(jobs, name, max=10)
        assert values(again) == expected
        if again:
            api.call(jobs, name, "ack", receipts=receipts(again))
            assert api.info(jobs, name)["lag"] == 0
    for place in (f"{second}/2", f"{first}/", f"{first}/x", f"{first}/-1", "0/1", "", "/", "x"):
        assert api.call(jobs, "g0", "seek", to=place).status_code == 400, place


def test_only_json_has_messages_to_skip(api: Api, jobs: str) -> None:
    path = f"{jobs}-text"
    api.http.put(f"/v1/stream/{path}", headers=TEXT, content="one")
    api.group(path, "g")
    assert code(api.call(path, "g", "seek", to="-1/1")) == (400, "invalid_offset")
    assert len(api.fetch(path, "g")) == 1


def test_seek_pause_resume_and_delete(api: Api, jobs: str) -> None:
    api.append(jobs, "a", "b")
    api.group(jobs, "g")
    old = receipts(api.fetch(jobs, "g", max=2))
    assert api.call(jobs, "g", "seek", to="first").status_code == 204
    assert api.call(jobs, "g", "ack", receipts=old).json()["stale"] == old
    assert api.call(jobs, "g", "pause").status_code == 204
    assert api.fetch(jobs, "g", max=2) == []
    assert api.call(jobs, "g", "resume").status_code == 204
    assert values(api.fetch(jobs, "g", max=2)) == ["a", "b"]
    assert api.http.delete(f"/v1/stream/{jobs}/_groups/g").status_code == 204
    assert code(api.call(jobs, "g", "fetch", consumer="me")) == (404, "group_not_found")


def test_figures(api: Api, jobs: str) -> None:
    api.append(jobs, *range(4))
    api.group(jobs, "g")
    api.fetch(jobs, "g", "ann", max=3)
    info = api.info(jobs, "g")
    assert (info["lag"], info["in_flight"], info["members"]) == (4, 3, {"ann": 3})
    assert info["lag_bytes"] > 0
    listed = api.http.get(f"/v1/stream/{jobs}/_groups").json()["groups"]
    assert [group["name"] for group in listed] == ["g"]


def test_once_durable_always_durable(api: Api, jobs: str) -> None:
    api.group(jobs, "g")
    assert code(api.group(jobs, "g", durable=False)) == (409, "group_conflict")
    assert api.group(jobs, "g", max_in_flight=7).status_code == 200
    assert api.info(jobs, "g")["config"]["max_in_flight"] == 7


def test_an_ephemeral_group_ends_without_members(api: Api, jobs: str) -> None:
    api.append(jobs, "a")
    fetched = None
    # A slow machine may let it end before its first member comes.
    while fetched is None or fetched.status_code == 404:
        api.group(jobs, "g", durable=False, ack_timeout_ms=2_000)
        fetched = api.call(jobs, "g", "fetch", consumer="me")
    assert len(fetched.json()["messages"]) == 1

    def ended() -> bool:
        return api.http.get(f"/v1/stream/{jobs}/_groups/g").status_code == 404

    with ThreadPoolExecutor() as pool:
        # Something else to wait on than the clock: another group's fetch that times out.
        api.group(jobs, "other", start="latest")
        while not ended():
            pool.submit(api.fetch, jobs, "other", wait_ms=50).result()


def test_a_member_that_stops_waiting_is_given_nothing(api: Api, jobs: str) -> None:
    api.group(jobs, "g", start="latest")
    body = b'{"consumer": "gone", "wait_ms": 60000}'
    head = f"POST /v1/stream/{jobs}/_groups/g/fetch HTTP/1.1\r\nHost: localhost\r\n"
    url = api.http.base_url
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while "gone" not in api.info(jobs, "g")["members"]:
            pass
    api.append(jobs, {"n": 99})
    assert [m["value"] for m in api.fetch(jobs, "g", wait_ms=10_000)] == [{"n": 99}]


def test_a_pushed_member_that_goes_away_gives_back_at_once(api: Api, jobs: str) -> None:
    api.append(jobs, "a", "b")
    api.group(jobs, "g")
    url = f"/v1/stream/{jobs}/_groups/g?live=sse&consumer=ann&max=2"
    with api.http.stream("GET", url) as events:
        lines = (line for line in events.iter_lines() if line.startswith("data:"))
        pushed = [json.loads(next(lines)[5:]) for _ in range(2)]
    assert values(pushed) == ["a", "b"]
    again: list[Any] = []
    while len(again) < 2:
        again += api.fetch(jobs, "g", "bob", max=2, wait_ms=10_000)
    assert [message["deliveries"] for message in again] == [2, 2]


def test_deleting_the_stream_ends_its_groups(api: Api, jobs: str) -> None:
    api.group(jobs, "g")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(api.call, jobs, "g", "fetch", consumer="me", wait_ms=20_000)
        while not api.info(jobs, "g")["members"]:
            pass
        api.http.delete(f"/v1/stream/{jobs}")
        assert code(waiting.result()) == (404, "stream_not_found")
    api.put(jobs)
    assert code(api.call(jobs, "g", "fetch", consumer="me")) == (404, "group_not_found")


@pytest.mark.parametrize(
    "action, body",
    [
        ("fetch", {}),
        ("fetch", {"consumer": ""}),
        ("fetch", {"consumer": 7}),
        ("fetch", {"consumer": "a", "max": 0}),
        ("fetch", {"consumer": "a", "max": 100_000}),
        ("fetch", {"consumer": "a", "wait_ms": -1}),
        ("fetch", {"consumer": "a", "surprise": 1}),
        ("fetch", {"consumer": "a", "ack": "all"}),
        ("fetch", {"consumer": "a", "ack": [1]}),
        ("fetch", {"consumer": "a", "ack": ["x"] * 10_001}),
        ("ack", {"receipts": []}),
        ("ack", {"receipts": "all"}),
        ("ack", {"receipts": [1]}),
        ("nack", {"receipts": ["x"], "delay_ms": "soon"}),
        ("extend", {"receipts": ["x"]}),
        ("seek", {}),
    ],
)
def test_bad_bodies_are_refused(api: Api, jobs: str, action: str, body: dict[str, Any]) -> None:
    api.group(jobs, "g")
    assert code(api.call(jobs, "g", action, **body)) == (400, "invalid_body")


def test_bad_settings_and_names_are_refused(api: Api, jobs: str) -> None:
    for settings in ({"max_in_flight": 0}, {"ack_timeout_ms": "1s"}, {"colour": "red"}):
        assert code(api.group(jobs, "g", **settings)) == (400, "invalid_body")
    assert code(api.group(jobs, "_g")) == (400, "invalid_path")
    assert code(api.group("nowhere", "g")) == (404, "stream_not_found")
    api.http.put(f"/v1/stream/{jobs}-text", headers=TEXT)
    assert code(api.group(jobs, "g", dead_letter=f"{jobs}-text")) == (409, "group_conflict")
    assert api.http.request("PATCH", f"/v1/stream/{jobs}/_groups/g").status_code == 405


# ── Transactions ─────────────────────────────────────────────────────────────────────────────


def test_acknowledge_and_publish_in_one(api: Api, jobs: str) -> None:
    api.put(f"{jobs}-out")
    api.append(jobs, "a")
    api.group(jobs, "g")
    held = receipts(api.fetch(jobs, "g"))
    ack = {"stream": jobs, "group": "g", "receipts": held}
    out = {"stream": f"{jobs}-out", "value": [1, 2]}
    answer = api.transact(ack=ack, publish=[out, out])
    assert answer.json()["acked"] == 1
    assert api.read(f"{jobs}-out") == [[1, 2], [1, 2]]
    assert code(api.transact(ack=ack, publish=[out])) == (409, "stale_receipt")
    assert api.read(f"{jobs}-out") == [[1, 2], [1, 2]]


def test_one_refused_publish_leaves_nothing_of_the_others(api: Api, jobs: str) -> None:
    for name, headers in (("out", {}), ("closed", {"Stream_Closed": "true"})):
        api.put(f"{jobs}-{name}", **headers)
    api.put(f"{jobs}-ids", Stream_Unique_Ids="succeed", Stream_Id_Pointer="/id")
    api.append(f"{jobs}-ids", {"id": "known"})
    api.append(jobs, "a")
    api.group(jobs, "g", ack_timeout_ms=60_000)
    held = receipts(api.fetch(jobs, "g"))
    fine = {"stream": f"{jobs}-out", "value": 1}
    refused = {
        "stream_not_found": {"stream": f"{jobs}-none", "value": 1},
        "stream_closed": {"stream": f"{jobs}-closed", "value": 1},
        "duplicate_id": {
            "stream": f"{jobs}-ids",
            "value": {"id": "known"},
            "on_duplicate": "abort",
        },
        "missing_id": {"stream": f"{jobs}-ids", "value": {}},
        "sequence_gap": fine | {"producer": {"id": "p", "epoch": 0, "seq": 9}},
        "invalid_body": {"stream": f"{jobs}-out", "data": "%%"},
    }
    ack = {"stream": jobs, "group": "g", "receipts": held}
    for expected, publish in refused.items():
        answer = api.transact(ack=ack, publish=[fine, publish])
        assert answer.status_code in (400, 409), answer.text
        assert answer.json()["error"]["code"] == expected
        assert answer.json()["error"]["index"] == 1
    assert api.read(f"{jobs}-out") == []
    assert api.call(jobs, "g", "ack", receipts=held).json()["acked"] == 1


def test_duplicates_can_count_as_success(api: Api, jobs: str) -> None:
    api.put(f"{jobs}-ids", Stream_Unique_Ids="fail", Stream_Id_Pointer="/id")
    publish = {"stream": f"{jobs}-ids", "value": {"id": 1}, "on_duplicate": "succeed"}
    answer = api.transact(publish=[publish, publish])
    assert [entry["duplicate"] for entry in answer.json()["published"]] == [False, True]
    assert api.read(f"{jobs}-ids") == [{"id": 1}]


def test_a_producer_in_a_transaction_is_stored_once(api: Api, jobs: str) -> None:
    publish = {"stream": jobs, "value": 1, "producer": {"id": "p", "epoch": 0, "seq": 0}}
    api.transact(publish=[publish])
    answer = api.transact(publish=[publish])
    assert answer.json()["published"][0]["duplicate"] is True
    assert api.read(jobs) == [1]


def test_a_producer_out_of_step_aborts_everything(api: Api, jobs: str) -> None:
    def stamped(epoch: int, seq: int) -> dict[str, Any]:
        return {"stream": jobs, "value": seq, "producer": {"id": "p", "epoch": epoch, "seq": seq}}

    assert api.transact(publish=[stamped(1, 0), stamped(1, 1)]).status_code == 200
    fine = {"stream": jobs, "value": "fine"}
    gap = api.transact(publish=[fine, stamped(1, 2), stamped(1, 4)])
    assert code(gap) == (409, "sequence_gap")
    assert gap.json()["error"]["index"] == 2
    assert gap.headers["Producer-Expected-Seq"] == "3"
    fenced = api.transact(publish=[fine, stamped(0, 0)])
    assert code(fenced) == (409, "stale_epoch")
    assert fenced.json()["error"]["index"] == 1
    assert fenced.headers["Producer-Epoch"] == "1"
    late = api.transact(publish=[fine, stamped(2, 1)])
    assert code(late) == (400, "epoch_must_start_at_zero")
    assert api.read(jobs) == [0, 1]
    mixed = api.transact(publish=[stamped(1, 1), stamped(1, 2)]).json()["published"]
    assert [entry["duplicate"] for entry in mixed] == [True, False]
    assert api.read(jobs) == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"id": 7},
        {"id": ""},
        {"id": "x" * 257},
        {"on_duplicate": "ignore"},
        {"producer": {"id": "p", "epoch": 0}},
        {"producer": {"id": 7, "epoch": 0, "seq": 0}},
        {"producer": {"id": "p", "epoch": -1, "seq": 0}},
        {"producer": {"id": "p", "epoch": 0, "seq": 2**53}},
        {"producer": "p"},
        {"stream": 7},
        {"stream": "../x"},
        {"surprise": 1},
        {"data": "eA=="},
    ],
)
def test_bad_publishes_are_refused(api: Api, jobs: str, change: dict[str, Any]) -> None:
    fine = {"stream": jobs, "value": 1}
    answer = api.transact(publish=[fine, fine | change])
    assert answer.status_code == 400, answer.text
    assert api.read(jobs) == []


def test_too_much_for_one_transaction_is_refused(api: Api, jobs: str) -> None:
    publish = {"stream": jobs, "value": 1}
    assert code(api.transact(publish=[publish] * 1001)) == (400, "invalid_body")
    assert api.read(jobs) == []
    api.group(jobs, "g")
    assert code(api.call(jobs, "g", "ack", receipts=["x"] * 10_001)) == (400, "invalid_body")


def test_an_ack_of_what_is_not_there_aborts(api: Api, jobs: str) -> None:
    publish = [{"stream": jobs, "value": 1}]
    nothing = {"stream": f"{jobs}-none", "group": "g", "receipts": ["1.1.1"]}
    assert code(api.transact(ack=nothing, publish=publish)) == (404, "stream_not_found")
    nobody = nothing | {"stream": jobs}
    assert code(api.transact(ack=nobody, publish=publish)) == (404, "group_not_found")
    api.group(jobs, "g")
    for receipt in ("1.1.1", "nonsense", "", "\x00", "é.é.é"):
        foreign = nobody | {"receipts": [receipt]}
        assert code(api.transact(ack=foreign, publish=publish)) == (409, "stale_receipt")
    assert api.read(jobs) == []


def test_an_empty_transaction_is_refused(api: Api) -> None:
    assert code(api.transact()) == (400, "invalid_body")
    nowhere = api.transact(publish=[{"stream": "../x", "value": 1}])
    assert code(nowhere) == (400, "invalid_path")
    assert nowhere.json()["error"]["index"] == 0
    assert api.http.get("/v1/transaction").status_code == 405


# ── Ensure and unique ids ────────────────────────────────────────────────────────────────────


def test_ensure_applies_newer_settings_only(api: Api, jobs: str) -> None:
    name = f"{jobs}-ensured"

    def ttl() -> str:
        return str(api.http.head(f"/v1/stream/{name}").headers["stream-ttl"])

    assert api.put(name, Stream_Config_Version="2", Stream_TTL="100").status_code == 201
    assert api.put(name, Stream_Config_Version="1", Stream_TTL="5").status_code == 200
    assert api.put(name, Stream_Config_Version="2", Stream_TTL="6").status_code == 409
    assert ttl() == "100"
    assert api.put(name, Stream_Config_Version="3", Stream_TTL="7").status_code == 200
    assert ttl() == "7"
    changed = api.put(name, Stream_Config_Version="4", Content_Type="text/plain")
    assert code(changed) == (409, "config_conflict")
    checking = api.put(name, Stream_Config_Version="4", Stream_Unique_Ids="fail")
    assert code(checking) == (409, "config_conflict")
    assert code(api.put(name, Stream_Config_Version="0")) == (400, "invalid_header")


def test_ids_in_a_fork_are_those_of_what_it_inherits(api: Api, jobs: str) -> None:
    name = f"{jobs}-ids"
    api.put(name, Stream_Unique_Ids="fail", Stream_Id_Pointer="/id")
    api.append(name, {"id": 1}, {"id": 2}, {"id": 3})
    zero = "0" * 16 + "_" + "0" * 16
    api.put(
        f"{name}-fork",
        Stream_Forked_From=name,
        Stream_Fork_Offset=zero,
        Stream_Fork_Sub_Offset="2",
    )
    assert code(api.append(f"{name}-fork", {"id": 2})) == (409, "duplicate_id")
    assert api.append(f"{name}-fork", {"id": 3}).status_code == 204
    assert api.read(f"{name}-fork") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_many_writers_of_the_same_ids_store_each_once(api: Api, jobs: str) -> None:
    name = f"{jobs}-ids"
    api.put(name, Stream_Unique_Ids="succeed", Stream_Id_Pointer="/id")

    def write(writer: int) -> None:
        for number in range(20):
            api.append(name, {"id": number, "by": writer}, {"id": number + 1, "by": writer})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sorted(message["id"] for message in api.read(name)) == list(range(21))


def test_a_producers_duplicate_comes_before_ids(api: Api, jobs: str) -> None:
    name = f"{jobs}-ids"
    api.put(name, Stream_Unique_Ids="fail", Stream_Id_Pointer="/id")
    producer = {"Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": "0"}
    assert api.append(name, {"id": 1}, **producer).status_code == 200
    assert api.append(name, {"id": 1}, **producer).status_code == 204
    assert code(api.append(name, {"id": 1})) == (409, "duplicate_id")


# ── Restarts ─────────────────────────────────────────────────────────────────────────────────


def test_a_kill_loses_no_acknowledgement_and_no_message(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        api = Api(server.url)
        api.put("jobs")
        api.put("ids", Stream_Unique_Ids="fail", Stream_Id_Pointer="/id")
        api.append("jobs", *range(30))
        api.append("ids", {"id": "x"})
        api.group("jobs", "g", ack_timeout_ms=500)
        done: list[int] = []
        for _ in range(3):
            done += api.ack("jobs", "g", api.fetch("jobs", "g", max=5, wait_ms=20_000)[:3])
            api.http.close()
            server.kill()
            server.start()
            api = Api(server.url)
        while api.info("jobs", "g")["lag"]:
            done += api.ack("jobs", "g", api.fetch("jobs", "g", max=50, wait_ms=20_000))
        assert sorted(done) == list(range(30))
        assert code(api.append("ids", {"id": "x"})) == (409, "duplicate_id")
        api.http.close()


# ── What must not wedge a group ──────────────────────────────────────────────────────────────

DEEPER_AND_DEEPER = ["[" * depth + "]" * depth for depth in range(1_010, 500, -1)]


def test_no_key_wedges_an_ordered_group(api: Api, jobs: str) -> None:
    deep = "[" * 900 + "]" * 900
    texts = ['{"k":1e400}', '{"k":1e400,"n":2}', "{}", '{"k":null}', f'{{"k":{deep}}}', '{"k":1}']
    for text in (*texts, f'{{"k":"{"x" * 1_000_000}"}}'):
        sent = api.http.post(f"/v1/stream/{jobs}", headers=JSON, content=text)
        assert sent.status_code == 204, sent.text
    api.group(jobs, "g", order_by="/k")
    first = api.call(jobs, "g", "fetch", consumer="me", max=10).text
    assert texts[0] in first
    assert texts[1] not in first, "it has the key of the first one"
    tokens = [part.split('"')[0] for part in first.split('"receipt":"')[1:]]
    assert len(tokens) == 6
    assert api.call(jobs, "g", "ack", receipts=tokens).json()["acked"] == 6
    assert texts[1] in api.call(jobs, "g", "fetch", consumer="me", max=10).text


@pytest.mark.parametrize("texts", [['{"k":1e400}'], DEEPER_AND_DEEPER])
def test_whatever_was_stored_can_become_a_dead_letter(
    api: Api, jobs: str, texts: list[str]
) -> None:
    def is_stored(text: str) -> bool:
        sent = api.http.post(f"/v1/stream/{jobs}", headers=JSON, content=f"[{text}]")
        return sent.status_code == 204

    text = next(text for text in texts if is_stored(text))
    api.group(jobs, "g", dead_letter=f"{jobs}-dead")
    answer = api.call(jobs, "g", "fetch", consumer="me").text
    receipt = answer.split('"receipt":"')[1].split('"')[0]
    api.call(jobs, "g", "reject", receipts=[receipt])
    letters = api.http.get(f"/v1/stream/{jobs}-dead?offset=-1&live=long-poll").text
    assert text in letters or base64.b64encode(text.encode()).decode() in letters
    assert api.info(jobs, "g")["lag"] == 0


def test_dead_letters_name_the_id_that_a_message_has_in_it(api: Api, jobs: str) -> None:
    stream = f"{jobs}-ids"
    api.put(stream, Stream_Unique_Ids="fail", Stream_Id_Pointer="/order")
    api.append(stream, {"order": 7}, {"order": "eight"})
    api.group(stream, "g", dead_letter=f"{jobs}-dead")
    found = api.fetch(stream, "g", max=2)
    assert [message["id"] for message in found] == ["7", "eight"]
    api.call(stream, "g", "reject", receipts=[message["receipt"] for message in found])
    letters = api.letters(f"{jobs}-dead", 2)
    assert [letter["origin"]["id"] for letter in letters] == ["7", "eight"]


def test_a_group_is_not_its_own_dead_letter_stream(api: Api, jobs: str) -> None:
    assert code(api.group(jobs, "g", dead_letter=jobs)) == (400, "invalid_body")


def test_dead_letters_are_bounded_in_bytes(api: Api, jobs: str) -> None:
    for _ in range(12):
        api.append(jobs, "x" * 1_000_000)
    api.group(jobs, "g", dead_letter=f"{jobs}-dead", ack_timeout_ms=60_000)
    rejected = 0
    while rejected < 12:
        held = receipts(api.fetch(jobs, "g", max=20))
        rejected += api.call(jobs, "g", "reject", receipts=held).json()["rejected"]
    offset, sizes = "-1", list[int]()
    while sum(sizes) < 12_000_000:
        live = {"offset": offset, "live": "long-poll"}
        page = api.http.get(f"/v1/stream/{jobs}-dead", params=live)
        sizes.append(len(page.content))
        offset = page.headers["Stream-Next-Offset"]
    assert max(sizes) < 6_000_000, "an append holds a few of them"


# ── Settings with a version ──────────────────────────────────────────────────────────────────


def test_groups_take_versions(api: Api, jobs: str) -> None:
    assert api.group(jobs, "g", version=2, max_in_flight=7).status_code == 201
    assert api.group(jobs, "g", version=2, max_in_flight=7).status_code == 200
    conflict = api.group(jobs, "g", version=2, max_in_flight=8)
    assert code(conflict) == (409, "group_conflict")
    assert "max_in_flight is 7, not 8" in conflict.json()["error"]["message"]
    older = api.group(jobs, "g", version=1, max_in_flight=9)
    assert (older.status_code, older.json()["config"]["max_in_flight"]) == (200, 7)
    newer = api.group(jobs, "g", version=3, max_deliveries=4)
    config = newer.json()["config"]
    assert (config["max_in_flight"], config["max_deliveries"], config["version"]) == (1000, 4, 3)


def test_a_put_with_one_setting_does_not_reset_the_others(api: Api, jobs: str) -> None:
    api.group(jobs, "g", max_in_flight=7, max_deliveries=3, dead_letter=f"{jobs}-dead")
    config = api.group(jobs, "g", ack_timeout_ms=5_000).json()["config"]
    assert config["ack_timeout_ms"] == 5_000
    assert (config["max_in_flight"], config["max_deliveries"]) == (7, 3)
    assert config["dead_letter"] == f"{jobs}-dead"
    assert api.group(jobs, "g", dead_letter=None).json()["config"]["dead_letter"] is None


# ── Duplicates in transactions ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mode, wanted, expected",
    [
        ("succeed", {}, 200),
        ("succeed", {"on_duplicate": "succeed"}, 200),
        ("succeed", {"on_duplicate": "abort"}, 409),
        ("fail", {}, 409),
        ("fail", {"on_duplicate": "abort"}, 409),
        ("fail", {"on_duplicate": "succeed"}, 200),
    ],
)
def test_what_a_duplicate_means_is_the_streams_to_say_or_the_publishs(
    api: Api, jobs: str, mode: str, wanted: dict[str, str], expected: int
) -> None:
    name = f"{jobs}-{mode}-{wanted.get('on_duplicate', 'unsaid')}"
    api.put(name, Stream_Unique_Ids=mode, Stream_Id_Pointer="/id")
    api.append(name, {"id": 1})
    publish = [{"stream": name, "value": {"id": number}, **wanted} for number in (1, 2, 2)]
    answer = api.transact(publish=publish)
    assert answer.status_code == expected, answer.text
    if expected == 200:
        assert [each["duplicate"] for each in answer.json()["published"]] == [True, False, True]
        assert api.read(name) == [{"id": 1}, {"id": 2}]
    else:
        assert api.read(name) == [{"id": 1}]


# ── What is known of a message ───────────────────────────────────────────────────────────────


STAMPED = {"Producer-Id": "p", "Producer-Epoch": "3", "Producer-Seq": "0"}


@pytest.mark.parametrize("cold", [False, True])
def test_deliveries_say_where_a_message_came_from(api: Api, jobs: str, cold: bool) -> None:
    before_ms = time.time() * 1000 - 1
    api.append(jobs, {"n": 1}, **STAMPED, **{"Message-Id": 'a "name"'})
    api.append(jobs, {"n": 2})
    if cold:
        # So much that the first ones are not in memory any more.
        for _ in range(3):
            api.append(jobs, "x" * 1_000_000)
    api.group(jobs, "g", start="first", max_deliveries=1, dead_letter=f"{jobs}-dead")
    first, second = api.fetch(jobs, "g", max=2)
    assert first["id"] == 'a "name"'
    assert first["producer"] == {"id": "p", "epoch": 3, "seq": 0}
    assert second["id"] == "1"
    assert "producer" not in second
    assert before_ms <= first["time"] <= second["time"] <= time.time() * 1000 + 1
    api.call(jobs, "g", "reject", receipts=[first["receipt"]])
    origin = api.letters(f"{jobs}-dead")[0]["origin"]
    assert origin["id"] == 'a "name"'
    assert origin["producer"] == {"id": "p", "epoch": 3, "seq": 0}
    assert origin["time"] == first["time"]


def test_groups_of_all_streams_page_by_page(api: Api) -> None:
    names = [f"everywhere-{number}" for number in range(3)]
    for name in names:
        api.put(name)
        api.append(name, 1, 2)
        assert api.group(name, "durable").status_code == 201
    assert api.group(names[0], "passing", durable=False).status_code == 201
    found: dict[str, list[str]] = {}
    after = 0
    while True:
        page = api.http.get("/v1/groups", params={"after": after, "limit": 1}).json()
        assert len(page["streams"]) <= 1
        for one in page["streams"]:
            found[one["stream"]] = sorted(group["name"] for group in one["groups"])
        if page["next"] is None:
            break
        after = page["next"]
    assert {name: found.get(name) for name in names} == {
        names[0]: ["durable", "passing"],
        names[1]: ["durable"],
        names[2]: ["durable"],
    }
    api.http.delete(f"/v1/stream/{names[1]}")
    left = [one["stream"] for one in api.http.get("/v1/groups").json()["streams"]]
    assert names[1] not in left
    assert api.http.get("/v1/groups", params={"limit": 0}).status_code == 400
