"""Live queries over HTTP, on both engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.core.live.keys import (
    membership_key,
    projected_key,
    table_key,
    template_id,
    template_key,
    to_hex,
    watch_key,
)
from tests.support.engines import SERVED, serving
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
TODOS = "public.todos"
TENANT = to_hex(template_id(TODOS, ["tenant"]))
TABLE = to_hex(table_key(TODOS))
names = count()


def watch(tenant: str) -> str:
    return to_hex(watch_key(int(TENANT, 16), [tenant.encode()]))


def member(tenant: str) -> str:
    return to_hex(membership_key(int(TENANT, 16), [tenant.encode()]))


def field(name: str, tenant: str) -> str:
    return to_hex(projected_key(int(TENANT, 16), name, [tenant.encode()]))


def template(*fields: str, entity: str = TODOS) -> dict[str, Any]:
    return {"entity": entity, "fields": [{"name": name, "encoding": "string"} for name in fields]}


def change(operation: str, key: str, new: Any = None, old: Any = None, **extra: Any) -> Any:
    record: dict[str, Any] = {"type": TODOS, "key": key, "headers": {"operation": operation}}
    if new is not None:
        record["value"] = new
    if old is not None:
        record["old_value"] = old
    return record | extra


class LiveApi:
    """One live stream, and the calls on it."""

    def __init__(self, http: httpx.AsyncClient, path: str) -> None:
        self.http = http
        self.path = path
        self.url = f"/v1/stream/{path}"

    async def create(self, **touch: Any) -> None:
        assert (await self.http.put(self.url, headers=JSON)).status_code == 201
        answer = await self.set_profile(**touch)
        assert answer.status_code == 200, answer.text

    async def set_profile(self, **touch: Any) -> httpx.Response:
        profile = {"kind": "state-protocol", "touch": {"enabled": True, **touch}}
        return await self.post("_profile", {"profile": profile})

    async def post(self, name: str, body: Any) -> httpx.Response:
        return await self.http.post(f"{self.url}/{name}", json=body)

    async def append(self, *records: Any) -> httpx.Response:
        return await self.http.post(self.url, json=[*records])

    async def insert(self, tenant: str, key: str = "1") -> None:
        answer = await self.append(change("insert", key, {"tenant": tenant}))
        assert answer.status_code == 204, answer.text

    async def meta(self, query: str = "") -> dict[str, Any]:
        answer = await self.http.get(f"{self.url}/touch/meta{query}")
        assert answer.status_code == 200, answer.text
        meta: dict[str, Any] = answer.json()
        return meta

    async def activate(self, *templates: Any, **body: Any) -> dict[str, Any]:
        answer = await self.post("touch/templates/activate", {"templates": templates, **body})
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    async def wait(self, *keys: str, cursor: str = "now", **body: Any) -> dict[str, Any]:
        body = {"cursor": cursor, "keys": keys, "timeoutMs": 60_000, **body}
        answer = await self.post("touch/wait", body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def begin_wait(self, *keys: str, **body: Any) -> asyncio.Task[dict[str, Any]]:
        """A wait that the server has, and that nothing has ended yet."""
        before = (await self.meta())["totalWaits"]
        task = asyncio.create_task(self.wait(*keys, **body))
        while (await self.meta())["totalWaits"] == before:
            assert not task.done()
        return task

    async def sleeps(self, *keys: str, **body: Any) -> bool:
        """Whether nothing of the keys was touched."""
        await self.meta("?settle=flush")
        return (await self.wait(*keys, timeoutMs=0, **body))["touched"] is False


@pytest.fixture(scope="module", params=SERVED)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with serving(request.param, tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
async def http(server: ServerProcess) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        yield client


@pytest.fixture
async def live(http: httpx.AsyncClient) -> LiveApi:
    stream = LiveApi(http, f"live/{next(names)}")
    await stream.create()
    return stream


async def another(http: httpx.AsyncClient, **touch: Any) -> LiveApi:
    stream = LiveApi(http, f"live/{next(names)}")
    await stream.create(**touch)
    return stream


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


# ── Ten situations in which a system of this kind is known to fail ───────────────────────────


async def test_a_fine_key_that_nobody_waited_on_before_the_change(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    cursor = (await live.meta())["cursor"]
    await live.insert("t1")
    result = await live.wait(watch("t1"), cursor=cursor, templateIdsUsed=[TENANT])
    assert result["touched"] is True
    assert await live.sleeps(watch("t2"), cursor=cursor, templateIdsUsed=[TENANT])


async def test_a_batch_of_many_updates_with_waiters_on_the_last_rows(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    rows = [{"tenant": f"t{n}", "a": 0, "b": 0, "c": 0, "d": 0} for n in range(500)]
    await live.append(*[change("insert", str(n), row) for n, row in enumerate(rows)])
    await live.meta("?settle=flush")
    waits = [
        await live.begin_wait(key, templateIdsUsed=[TENANT])
        for key in (watch("t499"), field("d", "t499"), field("a", "t498"))
    ]
    updated = [row | {"a": 1, "b": 1, "c": 1, "d": 1} for row in rows]
    pairs = enumerate(zip(updated, rows, strict=True))
    await live.append(*[change("update", str(n), new, old) for n, (new, old) in pairs])
    assert [(await wait)["touched"] for wait in waits] == [True] * 3


async def test_settling_right_after_an_append_that_nobody_waits_for(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    for number in range(20):
        await live.insert("t1", str(number))
        meta = await live.meta("?settle=flush")
        assert (meta["settled"], meta["pendingKeys"], meta["lagSourceOffsets"]) == (True, 0, 0)
        assert meta["bucketMaxSourceOffsetSeq"] == str(number + 1)
        quiet = await live.wait(
            watch("t1"), TABLE, cursor=meta["cursor"], templateIdsUsed=[TENANT], timeoutMs=0
        )
        assert quiet["touched"] is False


async def test_thirty_live_streams_at_once(http: httpx.AsyncClient) -> None:
    streams = [await another(http) for _ in range(30)]
    for stream in streams:
        await stream.activate(template("tenant"))
    waits = [await s.begin_wait(watch("t1"), templateIdsUsed=[TENANT]) for s in streams]
    await asyncio.gather(*[stream.insert("t1") for stream in streams])
    results = await asyncio.gather(*waits)
    assert [result["touched"] for result in results] == [True] * 30


async def test_exact_on_a_table_key(live: LiveApi) -> None:
    wait = await live.begin_wait(TABLE, exact=True)
    await live.insert("t1")
    assert (await wait)["touched"] is True


async def test_exact_on_a_template_key(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    wait = await live.begin_wait(to_hex(template_key(int(TENANT, 16))), exact=True)
    await live.insert("t1")
    assert (await wait)["touched"] is True


async def test_a_waiter_that_names_no_template_while_another_is_hot(live: LiveApi) -> None:
    await live.activate(template("tenant"), template("status"))
    hot = to_hex(template_id(TODOS, ["status"]))
    hot_key = to_hex(watch_key(int(hot, 16), [b"open"]))
    for _ in range(5):
        await live.wait(hot_key, templateIdsUsed=[hot], timeoutMs=0)
    wait = await live.begin_wait(watch("t1"))
    await live.append(change("insert", "1", {"tenant": "t1", "status": "open"}))
    assert (await wait)["touched"] is True


async def test_a_wait_that_began_fine_when_the_stream_turns_coarse(
    http: httpx.AsyncClient,
) -> None:
    """Fine at first; then so many changes come at once that rows are not looked at any more."""
    live = await another(
        http, lagDegradeFineTouchesAtSourceOffsets=10, lagRecoverFineTouchesAtSourceOffsets=0
    )
    await live.activate(template("tenant"))
    wait = await live.begin_wait(watch("last"), templateIdsUsed=[TENANT])
    assert (await live.meta())["touchMode"] == "fine"
    others = [change("insert", str(n), {"tenant": "other"}) for n in range(999)]
    await live.append(*others, change("insert", "last", {"tenant": "last"}))
    assert (await wait)["touched"] is True
    assert (await live.meta("?settle=flush"))["totalFallbackChanges"] > 0


async def test_a_missing_before_is_refused_at_once_and_stalls_nothing(
    http: httpx.AsyncClient,
) -> None:
    live = await another(http, onMissingBefore="error")
    await live.activate(template("tenant"))
    good = change("insert", "1", {"tenant": "t1"})
    refused = await live.append(good, change("update", "1", {"tenant": "t2"}))
    assert code(refused) == (422, "missing_before")
    assert refused.json()["error"]["index"] == 1
    assert (await http.get(live.url)).json() == []
    wait = await live.begin_wait(watch("t2"), templateIdsUsed=[TENANT])
    await live.append(good, change("update", "1", {"tenant": "t2"}, {"tenant": "t1"}))
    assert (await wait)["touched"] is True


@pytest.mark.parametrize("template_id", ["", "nonsense", "0" * 15, "0" * 17, "zz" * 8, "\u0000"])
async def test_malformed_template_ids(live: LiveApi, template_id: str) -> None:
    body = {"cursor": "now", "keys": [TABLE], "templateIdsUsed": [template_id], "timeoutMs": 0}
    assert code(await live.post("touch/wait", body)) == (400, "invalid_body")
    assert (await live.meta())["activeWaiters"] == 0


async def test_a_cap_within_one_call_never_reports_what_it_evicted(
    http: httpx.AsyncClient,
) -> None:
    live = await another(http, templates={"maxActiveTemplatesPerEntity": 2})
    await live.activate(template("old"))
    outcome = await live.activate(template("a"), template("b"), template("c"))
    reported = [entry["templateId"] for entry in outcome["activated"]]
    assert reported == [to_hex(template_id(TODOS, [name])) for name in ("a", "b")]
    assert outcome["denied"] == [{"index": 2, "reason": "cap"}]
    assert (await live.meta())["activeTemplates"] == 2


# ── Profiles ─────────────────────────────────────────────────────────────────────────────────


async def test_a_profile_is_echoed_whole_with_its_defaults(live: LiveApi) -> None:
    profile = (await live.http.get(f"{live.url}/_profile")).json()
    assert profile["apiVersion"] == "durable.streams/profile/v1"
    assert profile["profile"]["kind"] == "state-protocol"
    assert profile["profile"]["touch"]["memory"]["bucketMs"] == 100
    assert profile["profile"]["touch"]["templates"]["maxActiveTemplatesPerStream"] == 2048
    again = await live.post("_profile", profile)
    assert again.json() == profile


async def test_a_stream_is_generic_until_told_otherwise(http: httpx.AsyncClient) -> None:
    path = f"/v1/stream/live/{next(names)}"
    await http.put(path, headers=JSON)
    assert (await http.get(f"{path}/_profile")).json()["profile"] == {"kind": "generic"}
    wait: dict[str, Any] = {"cursor": "now", "keys": [TABLE]}
    activate: dict[str, Any] = {"templates": []}
    for name, method, body in [
        ("meta", "GET", None),
        ("wait", "POST", wait),
        ("templates/activate", "POST", activate),
    ]:
        answer = await http.request(method, f"{path}/touch/{name}", json=body)
        assert code(answer) == (404, "not_found")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"profile":{}}',
        '{"profile":{"kind":"other"}}',
        '{"profile":{"kind":"generic","touch":{}}}',
        '{"profile":{"kind":"state-protocol","touch":{"enabled":"yes"}}}',
        '{"profile":{"kind":"state-protocol","touch":{"storage":"sqlite"}}}',
        '{"profile":{"kind":"state-protocol","touch":{"memory":{"bucketMs":0}}}}',
        '{"profile":{"kind":"state-protocol","touch":{"onMissingBefore":"maybe"}}}',
        '{"profile":{"kind":"state-protocol"},"apiVersion":"v0"}',
        '{"profile":{"kind":"state-protocol"},"more":1}',
        '{"profile":{"kind":"state-protocol","touch":{'
        '"lagDegradeFineTouchesAtSourceOffsets":1,"lagRecoverFineTouchesAtSourceOffsets":2}}}',
    ],
)
async def test_a_profile_that_makes_no_sense(live: LiveApi, body: str) -> None:
    answer = await live.http.post(f"{live.url}/_profile", content=body, headers=JSON)
    assert code(answer) == (400, "invalid_body")
    assert (await live.meta())["settled"] is True


async def test_only_json_streams_hold_change_records(http: httpx.AsyncClient) -> None:
    path = f"/v1/stream/live/{next(names)}"
    await http.put(path, headers={"Content-Type": "text/plain"})
    answer = await http.post(f"{path}/_profile", json={"profile": {"kind": "state-protocol"}})
    assert code(answer) == (409, "profile_conflict")
    missing = await http.post(
        "/v1/stream/live/nowhere/_profile", json={"profile": {"kind": "generic"}}
    )
    assert code(missing) == (404, "stream_not_found")
    assert (await http.delete(f"{path}/_profile")).status_code == 405


async def test_malformed_records_are_refused_with_their_index(live: LiveApi) -> None:
    good = change("insert", "1", {"tenant": "t1"})
    answer = await live.append(good, {"type": TODOS})
    assert code(answer) == (400, "invalid_record")
    assert answer.json()["error"]["index"] == 1
    assert (await live.http.get(live.url)).json() == []


async def test_turning_live_off_ends_the_waits(live: LiveApi) -> None:
    wait = asyncio.create_task(live.post("touch/wait", {"cursor": "now", "keys": [TABLE]}))
    while not (await live.meta())["activeWaiters"]:
        pass
    await live.post("_profile", {"profile": {"kind": "generic"}})
    assert code(await wait) == (404, "not_found")
    assert (await live.append({"free": "form"})).status_code == 204


async def test_new_settings_start_a_new_journal(live: LiveApi) -> None:
    cursor = (await live.meta())["cursor"]
    await live.set_profile(coarseIntervalMs=5)
    assert (await live.wait(TABLE, cursor=cursor))["stale"] is True


# ── Waiting ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"cursor": "now"},
        {"cursor": "now", "keys": [], "keyIds": []},
        {"cursor": "now", "templateIdsUsed": [TENANT]},
        {"keys": [TABLE]},
        {"cursor": "", "keys": [TABLE]},
        {"cursor": "then", "keys": [TABLE]},
        {"cursor": f"{'0' * 16}:", "keys": [TABLE]},
        {"cursor": f"{'0' * 16}:-1", "keys": [TABLE]},
        {"cursor": f"{'0' * 15}:1", "keys": [TABLE]},
        {"cursor": f"{'0' * 16}:{'9' * 20}", "keys": [TABLE]},
        {"cursor": 5, "keys": [TABLE]},
        {"cursor": "now", "keys": TABLE},
        {"cursor": "now", "keys": [5]},
        {"cursor": "now", "keys": [TABLE] * 1025},
        {"cursor": "now", "keyIds": [-1]},
        {"cursor": "now", "keyIds": [2**32]},
        {"cursor": "now", "keyIds": [1.5]},
        {"cursor": "now", "keyIds": [1] * 1025},
        {"cursor": "now", "keys": [TABLE], "timeoutMs": -1},
        {"cursor": "now", "keys": [TABLE], "timeoutMs": 120_001},
        {"cursor": "now", "keys": [TABLE], "interestMode": "medium"},
        {"cursor": "now", "keys": ["text"], "exact": True},
        {"cursor": "now", "keys": [TABLE], "exact": True, "interestMode": "coarse"},
        {"cursor": "now", "keys": [TABLE], "sinceTouchOffset": "0_0"},
        {"cursor": "now", "keyIds": [1], "exact": True},
        {"cursor": "now", "keys": [TABLE] * 17, "exact": True},
        {"cursor": "now", "keys": [TABLE], "templateIdsUsed": "x"},
        {"cursor": "now", "keys": [TABLE], "declareTemplates": {}},
        {"cursor": "now", "keys": [TABLE], "inactivityTtlMs": 0},
    ],
)
async def test_waits_that_make_no_sense(live: LiveApi, body: Any) -> None:
    assert code(await live.post("touch/wait", body)) == (400, "invalid_body")


async def test_a_wait_needs_a_body_and_its_method(live: LiveApi) -> None:
    url = f"{live.url}/touch/wait"
    assert code(await live.http.post(url)) == (400, "invalid_body")
    assert (await live.http.get(url)).status_code == 405
    assert (await live.http.put(url)).status_code == 405


async def test_a_cursor_from_the_future_is_refused(live: LiveApi) -> None:
    meta = await live.meta()
    body = {"cursor": f"{meta['epoch']}:{meta['generation'] + 1}", "keys": [TABLE]}
    assert code(await live.post("touch/wait", body)) == (400, "invalid_body")


async def test_what_is_answered(live: LiveApi) -> None:
    await live.insert("t1")
    cursor = (await live.meta("?settle=flush"))["cursor"]
    quiet = await live.wait(TABLE, cursor=cursor, timeoutMs=0)
    assert quiet == quiet | {"touched": False, "cursor": cursor, "effectiveWaitKind": "fineKey"}
    assert quiet["bucketMaxSourceOffsetSeq"] == "1"
    assert quiet["bucketStartMs"] <= quiet["flushAtMs"]
    other = await live.wait(TABLE, cursor=f"{'0' * 16}:0")
    epoch, generation = cursor.split(":")
    assert other["stale"] is True
    assert (other["epoch"], other["generation"]) == (epoch, int(generation))
    assert other["error"]["code"] == "stale"
    coarse = await live.wait(TABLE, cursor=cursor, timeoutMs=0, interestMode="coarse")
    assert coarse["effectiveWaitKind"] == "tableKey"


async def test_keys_and_key_ids_both_count(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    cursor = (await live.meta("?settle=flush"))["cursor"]
    await live.insert("t1")
    await live.meta("?settle=flush")
    ids = {"cursor": cursor, "timeoutMs": 0, "templateIdsUsed": [TENANT]}
    t1, t2 = (int(watch(tenant), 16) & 0xFFFF_FFFF for tenant in ("t1", "t2"))
    assert (await live.wait(watch("t2"), keyIds=[t1], **ids))["touched"] is True
    assert (await live.wait(watch("t1"), keyIds=[t2], **ids))["touched"] is True
    assert (await live.wait(watch("t2"), keyIds=[t2], **ids))["touched"] is False
    assert (await live.wait(*[watch("t2")] * 1024, **ids))["touched"] is False
    wait = await live.begin_wait(keyIds=[t2], templateIdsUsed=[TENANT])
    await live.insert("t2")
    assert (await wait)["touched"] is True


async def test_a_broad_wait_wakes_too(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    keys = [watch(f"t{number}") for number in range(200)]
    wait = await live.begin_wait(*keys, templateIdsUsed=[TENANT])
    assert (await live.meta())["broadFineWaitersActive"] == 1
    await live.insert("elsewhere")
    await live.meta("?settle=flush")
    assert not wait.done()
    await live.insert("t150")
    assert (await wait)["touched"] is True


async def test_only_those_wake_whose_rows_changed(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    rows = [{"tenant": "t1", "title": "a"}, {"tenant": "t1", "title": "b"}]
    await live.append(change("insert", "1", rows[0]))
    cursor = (await live.meta("?settle=flush"))["cursor"]
    await live.append(change("update", "1", rows[1], rows[0]))
    body = {"cursor": cursor, "templateIdsUsed": [TENANT]}
    assert await live.sleeps(member("t1"), **body)
    assert await live.sleeps(field("status", "t1"), **body)
    assert not await live.sleeps(field("title", "t1"), **body)
    assert not await live.sleeps(watch("t1"), **body)


async def test_a_client_that_hangs_up_waits_no_more(live: LiveApi) -> None:
    wait = await live.begin_wait(TABLE)
    assert (await live.meta())["activeWaiters"] == 1
    wait.cancel()
    while (await live.meta())["activeWaiters"]:
        pass


async def test_deleting_the_stream_ends_the_waits(live: LiveApi) -> None:
    body = {"cursor": "now", "keys": [TABLE]}
    wait = asyncio.create_task(live.post("touch/wait", body))
    while not (await live.meta())["activeWaiters"]:
        pass
    await live.http.delete(live.url)
    assert code(await wait) == (404, "stream_not_found")
    assert code(await live.post("touch/wait", body)) == (404, "stream_not_found")


async def test_a_reset_makes_everyone_stale(live: LiveApi) -> None:
    cursor = (await live.meta())["cursor"]
    wait = await live.begin_wait(TABLE)
    await live.append({"headers": {"control": "reset"}})
    result = await wait
    assert result["stale"] is True
    assert (await live.wait(TABLE, cursor=cursor))["stale"] is True
    assert await live.sleeps(TABLE, cursor=result["cursor"])


async def test_snapshot_marks_touch_nothing(live: LiveApi) -> None:
    cursor = (await live.meta())["cursor"]
    for control in ("snapshot-start", "snapshot-end"):
        await live.append({"headers": {"control": control}})
    assert await live.sleeps(TABLE, cursor=cursor)


# ── Templates ────────────────────────────────────────────────────────────────────────────────


async def test_activation_is_idempotent_and_says_from_when(live: LiveApi) -> None:
    first = await live.activate(template("tenant"), template("status", "tenant"))
    again = await live.activate(template("tenant"), template("tenant"))
    assert [entry["state"] for entry in first["activated"]] == ["active", "active"]
    assert again["activated"] == first["activated"][:1]
    assert again["denied"] == []
    assert again["limits"] == {
        "maxActiveTemplatesPerEntity": 256,
        "maxActiveTemplatesPerStream": 2048,
        "activationRateLimitPerMinute": 100,
    }


@pytest.mark.parametrize(
    "bad",
    [
        5,
        None,
        {},
        {"entity": TODOS},
        {"entity": TODOS, "fields": []},
        {"entity": "", "fields": [{"name": "a"}]},
        {"entity": 1, "fields": [{"name": "a"}]},
        {"entity": TODOS, "fields": [{"name": "a"}, {"name": "a"}]},
        {"entity": TODOS, "fields": [{"name": name} for name in "abcd"]},
        {"entity": TODOS, "fields": [{"name": ""}]},
        {"entity": TODOS, "fields": ["a"]},
        {"entity": TODOS, "fields": [{"name": "a", "encoding": "float"}]},
    ],
)
async def test_templates_that_make_no_sense_are_denied(live: LiveApi, bad: Any) -> None:
    outcome = await live.activate(template("tenant"), bad)
    assert len(outcome["activated"]) == 1
    assert outcome["denied"] == [{"index": 1, "reason": "invalid"}]


async def test_too_many_in_one_call(live: LiveApi) -> None:
    body = {"templates": [template("a")] * 257}
    assert code(await live.post("touch/templates/activate", body)) == (400, "invalid_body")
    assert code(await live.post("touch/templates/activate", {})) == (400, "invalid_body")


async def test_another_encoding_is_a_conflict(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    other = {"entity": TODOS, "fields": [{"name": "tenant", "encoding": "int64"}]}
    outcome = await live.activate(other)
    assert outcome["denied"] == [{"index": 0, "reason": "encoding_conflict"}]


async def test_new_templates_are_limited_per_minute(http: httpx.AsyncClient) -> None:
    live = await another(http, templates={"activationRateLimitPerMinute": 2})
    outcome = await live.activate(*[template(name) for name in "abcd"])
    assert [entry["reason"] for entry in outcome["denied"]] == ["rate_limited"] * 2
    again = await live.activate(template("a"))
    assert again["denied"] == []


async def test_a_wait_can_declare_its_template(live: LiveApi) -> None:
    body = {"declareTemplates": [template("tenant")], "templateIdsUsed": [TENANT]}
    wait = await live.begin_wait(watch("t1"), **body)
    await live.insert("t2")
    await live.meta("?settle=flush")
    assert not wait.done()
    await live.insert("t1")
    assert (await wait)["touched"] is True


async def test_a_retired_template_wakes_who_relied_on_it(http: httpx.AsyncClient) -> None:
    live = await another(http, templates={"gcIntervalMs": 1})
    for attempt in range(12):
        await live.activate(template("tenant"), inactivityTtlMs=2**attempt)
        result = await live.wait(watch("t1"), templateIdsUsed=[TENANT], timeoutMs=5_000)
        if result["touched"]:
            break
        # On a slow machine it may be retired before the wait begins, which then relies on nothing.
    else:
        pytest.fail("nobody was woken")
    assert (await live.meta())["activeTemplates"] == 0
    wait = await live.begin_wait(watch("t1"), templateIdsUsed=[TENANT])
    await live.insert("t1")
    assert (await wait)["touched"] is True


# ── Meta ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("query", ["?settle=no", "?timeoutMs=-1", "?timeoutMs=120001"])
async def test_questions_to_meta_that_make_no_sense(live: LiveApi, query: str) -> None:
    answer = await live.http.get(f"{live.url}/touch/meta{query}")
    assert code(answer) == (400, "invalid_query")


async def test_a_large_append_settles_too(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    records = [change("insert", str(n), {"tenant": f"t{n % 7}"}) for n in range(5_000)]
    await live.append(*records)
    meta = await live.meta("?settle=flush")
    assert (meta["settled"], meta["bucketMaxSourceOffsetSeq"]) == (True, "5000")


async def test_what_happens_is_told_in_a_stream(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    await live.insert("t1")
    mine: list[Any] = []
    # There may be a tick from before the activation, too.
    while not {"template_activated", "tick"} <= {line["type"] for line in mine}:
        answer = await live.http.get("/v1/stream/live.metrics?offset=-1")
        lines = answer.json() if answer.status_code == 200 else []
        mine = [line for line in lines if line["stream"] == live.path]
    activated = [line for line in mine if line["type"] == "template_activated"]
    assert [line["templateId"] for line in activated] == [TENANT]


async def test_no_stream_can_be_named_like_a_live_resource(http: httpx.AsyncClient) -> None:
    for name in ("meta", "wait", "templates/activate"):
        answer = await http.put(f"/v1/stream/some/touch/{name}", headers=JSON)
        assert answer.status_code == 405
    assert (await http.put("/v1/stream/touch/meta", headers=JSON)).status_code == 201


# ── Restarts ─────────────────────────────────────────────────────────────────────────────────


async def test_profile_and_templates_survive_and_cursors_do_not(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
            live = LiveApi(http, "app")
            await live.create(coarseIntervalMs=7)
            await live.activate(template("tenant"))
            cursor = (await live.meta())["cursor"]
            server.kill()
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
            live = LiveApi(http, "app")
            assert (await live.wait(watch("t1"), cursor=cursor))["stale"] is True
            assert (await live.meta())["activeTemplates"] == 1
            wait = await live.begin_wait(watch("t1"), templateIdsUsed=[TENANT])
            await live.insert("t2")
            await live.meta("?settle=flush")
            assert not wait.done()
            await live.insert("t1")
            assert (await wait)["touched"] is True
            profile = json.loads((await http.get("/v1/stream/app/_profile")).text)
            assert profile["profile"]["touch"]["coarseIntervalMs"] == 7


async def test_meta_names_the_templates_if_asked(live: LiveApi) -> None:
    await live.activate(template("tenant"))
    assert "templates" not in await live.meta()
    (found,) = (await live.meta("?templates=true"))["templates"]
    assert found["templateId"] == TENANT
    assert [field["name"] for field in found["fields"]] == ["tenant"]
    assert found["waiters"] == 0
    assert found["inactivityTtlMs"] > 0
