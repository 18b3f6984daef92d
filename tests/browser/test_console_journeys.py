"""What people do in the console, from the first look to the last click."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.access.guests import House
from tests.browser.console import JSON, Console, Shop
from tests.support.browser import Browser
from tests.support.server import ServerProcess

ORDERS = "#/stream/shop%2Forders"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("journeys") / "data"
    with ServerProcess("--data", str(data)) as process:
        yield process


@pytest.fixture(scope="module")
def shop(server: ServerProcess) -> Iterator[Shop]:
    shop = Shop(server.url)
    shop.open()
    yield shop
    shop.http.close()


@pytest.fixture
def console(browser: Browser, server: ServerProcess, shop: Shop) -> Iterator[Console]:
    opened = Console(browser, server.url)
    yield opened
    opened.close()


def ids(console: Console) -> list[int]:
    return [one["id"] for one in console.values()]


# ── Browsing ─────────────────────────────────────────────────────────────────────────────────


def test_from_the_newest_message_to_the_oldest_and_back(console: Console) -> None:
    console.show(ORDERS, "the last 200")
    assert ids(console) == list(range(499, 299, -1))
    console.press("Older")
    console.sees("messages 200 to 299")
    assert ids(console) == list(range(299, 199, -1))
    console.press("Older")
    console.sees("messages 100 to 199")
    console.press("Newer")
    console.sees("messages 200 to 299")
    console.press("Oldest")
    console.sees("messages 0 to 99")
    console.press("Older")
    console.sees("this is the beginning")
    console.press("Newest")
    console.sees("the last 200")


def test_a_jump_to_a_number_an_offset_and_a_time(console: Console, shop: Shop) -> None:
    console.show(ORDERS, "the last 200")
    console.write("Where to go", "137")
    console.press("Go")
    console.sees("messages 137 to 236")
    assert ids(console)[-1] == 137
    place = shop.http.get("shop/orders/_position", params={"number": 45}).json()
    console.choose("Go to", "offset")
    console.write("Where to go", f"{place['offset']}/{place['skip']}")
    console.press("Go")
    console.sees("messages 45 to 144")
    console.choose("Go to", "time")
    console.write("Where to go", "2020-01-01T00:00:01")
    console.press("Go")
    console.sees("messages 0 to 99")
    console.choose("Go to", "offset")
    console.write("Where to go", "nonsense")
    console.press("Go")
    console.sees("invalid_offset")


def test_a_message_opens_level_by_level(console: Console, shop: Shop) -> None:
    shop.put("exact")
    value = b'{"big": 12345678901234567890, "twice": 1, "twice": 2, "deep": {"list": [1.0, null]}}'
    shop.append("exact", value, "application/json")
    console.show("#/stream/exact", "the last 1")
    console.page.click(".message summary")
    console.sees("12345678901234567890", "message 0", "Copy")
    tree = console.page.text(".view")
    assert tree.count('"twice"') == 2
    assert "1.0" in tree
    console.check()
    console.press("Raw")
    assert console.page.text(".view pre") == value.decode()
    console.press("Pretty")
    assert '\n  "big": 12345678901234567890,' in console.page.text(".view pre")
    console.page.run("await context.grantPermissions(['clipboard-read', 'clipboard-write'])")
    console.press("Copy")
    console.sees("Copied")
    assert console.page.evaluate("return navigator.clipboard.readText()") == value.decode()


def test_messages_are_saved_as_they_are(console: Console, tmp_path: Path) -> None:
    save = (
        "const [saved] = await Promise.all([page.waitForEvent('download'),"
        " page.getByRole('button', {name: 'Download'}).nth(args.nth).click()]);"
        "await saved.saveAs(args.path); return saved.suggestedFilename()"
    )
    console.show(ORDERS, "the last 200")
    assert console.page.run(save, nth=0, path=str(tmp_path / "all")) == "shop_orders.ndjson"
    lines = (tmp_path / "all").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(300, 500))
    console.show("#/stream/shop%2Fraw", "the last 1")
    console.page.click(".message summary")
    console.sees("000010")
    console.page.run(save, nth=1, path=str(tmp_path / "raw"))
    assert (tmp_path / "raw").read_bytes() == bytes(range(256))


def test_pictures_bytes_and_text(console: Console) -> None:
    console.show("#/stream/shop%2Fpictures", "image/png, ")
    console.page.click(".message summary")
    shown = "const one = document.querySelector('.picture'); return one?.naturalWidth === 64"
    console.page.wait_for(shown)
    console.check()
    console.picture("picture")
    console.press("Hex")
    console.sees("89 50 4e 47")
    console.show("#/stream/shop%2Fnotes", "first line")
    console.page.click(".message summary")
    console.sees("second line")


def test_offsets_and_producers_on_demand(console: Console) -> None:
    console.show(ORDERS, "the last 200")
    assert "till-1" not in console.page.text("main")
    console.page.run("await page.getByLabel('Producers').check()")
    console.sees("till-1 · 0/24")
    console.page.run("await page.getByLabel('Offsets').check()")
    console.page.wait_for("return /_\\d{16}\\/19/.test(document.body.innerText)")


# ── Searching ────────────────────────────────────────────────────────────────────────────────


def test_a_search_by_text_and_by_a_value_in_json(console: Console) -> None:
    console.show(ORDERS, "the last 200")
    console.write("Text to search for", "CAKE")
    console.write("Condition on a value in JSON", "total > 37")
    console.press("Search")
    console.sees("500 of 500 searched")
    found = console.values()
    assert found
    assert all(one["item"] == "cake" and one["total"] > 37 for one in found)
    assert [one["id"] for one in found] == sorted((one["id"] for one in found), reverse=True)
    console.picture("search")
    console.choose("Order", "on")
    console.write("Text to search for", "")
    console.write("Condition on a value in JSON", "customer.tags[*] = eu")
    console.press("Search")
    console.sees("500 found")
    assert ids(console)[:3] == [0, 1, 2]
    console.write("Condition on a value in JSON", "total >")
    console.write("Text to search for", "no such thing")
    console.press("Search")
    console.sees("No message matches.")
    console.write("Condition on a value in JSON", "total ? 3")
    console.press("Search")
    console.sees("is no condition")


# ── Following ────────────────────────────────────────────────────────────────────────────────


def test_the_tail_is_followed_paused_and_bounded(console: Console, shop: Shop) -> None:
    shop.put("fast")
    console.show("#/stream/fast", "Nothing yet")
    shop.post("fast", [{"n": 0}])
    console.sees('{"n": 0}')
    console.press("Pause")
    shop.post("fast", [{"n": 1}])
    console.sees("Go on")
    assert [one["n"] for one in console.values()] == [0]
    console.press("Go on")
    console.page.wait_for("return document.querySelectorAll('.message').length === 2")
    for start in range(2, 10_002, 1_000):
        shop.post("fast", [{"n": start + at} for at in range(1_000)])
    console.page.wait_for("return document.querySelector('.value')?.innerText.includes('10001')")
    shown = [one["n"] for one in console.values()]
    assert shown == list(range(10_001, 9_801, -1))
    console.sees("10,00")
    shop.http.post("fast", headers={"Stream-Closed": "true"})
    console.sees("Ended")


def test_a_message_is_appended(console: Console, shop: Shop) -> None:
    shop.put("inbox")
    console.show("#/stream/inbox", "Append a message")
    console.page.click("text=Append a message")
    console.write("Message to append", "{nonsense")
    console.press("Append")
    console.sees("invalid_json")
    console.write("Message to append", '{"hello": "world"}')
    console.press("Append")
    console.page.wait_for("return document.querySelectorAll('.message').length === 1")


# ── Rows, groups, storage ────────────────────────────────────────────────────────────────────


def test_the_rows_of_a_stream_and_their_history(console: Console, shop: Shop) -> None:
    console.show("#/stream/shop%2Fcustomers/state", "c003")
    rows = console.page.texts(".messages .key")
    assert rows == [f"c{number:03}" for number in range(8)]
    console.page.click("text=c003")
    console.press("History")
    console.sees("History of c003")
    changes = console.page.texts("section[aria-label='History of c003'] .value")
    assert [json.loads(one)["value"]["visits"] for one in changes] == [21, 12, 3]
    change = {"type": "customer", "key": "c003", "value": {"visits": 99}}
    shop.post("shop/customers", {**change, "headers": {"operation": "update"}})
    console.sees('{"visits": 99}')


def test_dead_letters_are_replayed_once(console: Console, shop: Shop) -> None:
    console.show("#/group/shop%2Forders/kitchen", "max_deliveries")
    before = shop.count("shop/orders")
    console.press("Replay")
    console.sees("replayed")
    assert shop.count("shop/orders") == before + 1
    # Another look knows nothing of the first one; the server does.
    console.show("#/group/shop%2Forders/kitchen", "max_deliveries")
    console.press("Replay all")
    console.press("Replay them")
    console.page.wait_for("return document.querySelectorAll('td .good').length === 3")
    assert shop.count("shop/orders") == before + 3
    console.press("Pause")
    console.sees("paused")
    console.press("Resume")
    console.sees("running")


def test_bytes_that_were_given_up_are_replayed(console: Console, shop: Shop) -> None:
    shop.put("shop/scans", "application/octet-stream")
    shop.append("shop/scans", b"\x00\xff scan", "application/octet-stream")
    settings = {"max_deliveries": 1, "dead_letter": "shop/unread", "ack_timeout_ms": 600_000}
    shop.http.put("shop/scans/_groups/readers", json=settings)
    fetched = shop.post("shop/scans/_groups/readers/fetch", {"consumer": "ann", "max": 1}).json()
    receipts = [one["receipt"] for one in fetched["messages"]]
    shop.post("shop/scans/_groups/readers/reject", {"receipts": receipts})
    for _ in range(2):
        console.show("#/group/shop%2Fscans/readers", "7 bytes")
        console.press("Replay")
        console.sees("replayed")
    assert shop.http.get("shop/scans?offset=-1").content == 2 * b"\x00\xff scan"


def test_a_stream_from_its_beginning_to_its_end_and_back(console: Console, shop: Shop) -> None:
    console.show("#/streams", "New stream")
    console.press("New stream")
    console.write("Path", "made/here")
    console.press("Create")
    console.sees("Nothing yet")
    console.press("Delete")
    console.write("Type its path to go on", "made/there")
    console.press("Delete it")
    assert shop.http.get("made/here/_details").status_code == 200
    console.write("Type its path to go on", "made/here")
    console.press("Delete it")
    console.page.wait_for("return location.hash === '#/streams'")
    assert shop.http.get("made/here/_details").status_code == 404
    console.show("#/storage", "made/here")
    row = "page.locator('tr', {hasText: 'made/here'}).getByRole('button')"
    console.page.run(f"await {row}.click()")
    console.page.wait_for("return !document.body.innerText.includes('made/here')")
    assert shop.http.get("made/here/_details").status_code == 200


# ── Hostile contents ─────────────────────────────────────────────────────────────────────────

EVIL = "<img src=x onerror=\"globalThis.stolen='yes'\"><script>globalThis.stolen='yes'</script>"

GROUP = "g'&$(%3Cb"


def test_nothing_that_is_stored_becomes_a_part_of_the_page(console: Console, shop: Shop) -> None:
    path = "a'b(c);$&@*/x!~=,+:%3Cscript"
    url, quoted = quote(path, safe="/"), quote(path, safe="")
    shop.put(url, Stream_Description="<b onclick=alert(1)>hi</b>")
    record = {"type": EVIL, "key": EVIL, "value": {EVIL: EVIL}, "headers": {"operation": "insert"}}
    shop.post(url, [record, EVIL, [EVIL], {"__proto__": {"x": 1}, "constructor": EVIL}])
    shop.put("evil/page", "text/html")
    shop.append("evil/page", f"<html>{EVIL}</html>".encode(), "text/html")
    shop.put("evil/drawing", 'image/svg+xml; charset="\'<x>"')
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' onload='stolen=1'>{EVIL}</svg>"
    shop.append("evil/drawing", svg.encode(), "image/svg+xml")
    made = {"max_deliveries": 1, "dead_letter": "evil/failed"}
    assert shop.http.put(f"{url}/_groups/{quote(GROUP)}", json=made).status_code == 201
    for place in (
        f"#/stream/{quoted}",
        f"#/stream/{quoted}/state",
        f"#/stream/{quoted}/groups",
        f"#/stream/{quoted}/about",
        "#/stream/evil%2Fpage",
        "#/stream/evil%2Fdrawing",
        "#/streams",
        "#/groups",
        "#/stream/%3Cscript%3Estolen%3D1%3C%2Fscript%3E",
        "#/group/%3Cimg%20src%3Dx%3E/%3Cb%3E",
        f"#/{EVIL}",
        "#/__proto__",
        "#/stream/%E0%A4%A",
    ):
        console.show(place)
        console.page.wait_for("return !!document.querySelector('main h1, main .problem')")
        console.page.evaluate(
            "for (const one of document.querySelectorAll('.message')) one.open = true;"
            "await new Promise((resolve) => setTimeout(resolve, 100))"
        )
        assert console.page.evaluate("return globalThis.stolen ?? null") is None
        script = "return document.querySelectorAll('main script, main img:not(.picture)').length"
        assert console.page.evaluate(script) == 0
    console.show(f"#/stream/{quoted}", "globalThis.stolen", "<b onclick=alert(1)>hi</b>")
    assert console.page.text("h1") == path


def test_json_that_is_deep_or_huge_does_not_stop_the_page(console: Console, shop: Shop) -> None:
    shop.put("heavy")
    deep = b"[" * 900 + b"]" * 900
    shop.append("heavy", b"[" + deep + b"]", "application/json")
    shop.append("heavy", json.dumps([list(range(20_000))]).encode(), "application/json")
    shop.append("heavy", json.dumps({"long": "x" * 2_000_000}).encode(), "application/json")
    console.show("#/stream/heavy", "the last 3")
    console.page.evaluate(
        "for (const one of document.querySelectorAll('.message')) one.open = true;"
    )
    console.sees("download it to see all", "19,900 more")
    assert console.page.evaluate("return document.querySelectorAll('*').length") < 2_000


def test_messages_of_ten_megabytes(console: Console, shop: Shop) -> None:
    shop.put("vast", "text/plain")
    shop.append("vast", b"<b>" + b"x" * 10_000_000, "text/plain")
    shop.put("vast/json")
    shop.append("vast/json", b'["%b"]' % (b"y" * 10_000_000), "application/json")
    for path in ("vast", "vast%2Fjson"):
        console.show(f"#/stream/{path}", "the last 1")
        console.page.click(".message summary")
        console.sees("download it to see all")


@pytest.mark.slow
def test_thousands_of_streams(browser: Browser) -> None:
    with ServerProcess("--memory") as server:
        shop, console = Shop(server.url), Console(browser, server.url)
        for number in range(3_000):
            shop.put(f"crowd/{number:05}")
        for place, text in (
            ("#/live", "Live"),
            ("#/", "crowd/00009"),
            ("#/streams", "crowd/00099"),
        ):
            console.show(place, text)
            assert console.page.evaluate("return document.querySelectorAll('*').length") < 3_000
        for last in ("crowd/00199", "crowd/00299"):
            console.press("More")
            console.sees(last)
        shop.http.close()
        console.close()


def test_what_is_too_long_for_a_page_is_searched_and_saved_whole(
    console: Console, shop: Shop, tmp_path: Path
) -> None:
    shop.put("long")
    for number in range(3):
        value = {"text": "x" * 300_000, "id": number, "end": f"end {number}"}
        shop.append("long", json.dumps(value).encode(), "application/json")
    shop.put("long/bytes", "application/octet-stream")
    shop.append("long/bytes", bytes(300_001), "application/octet-stream")
    console.show("#/stream/long%2Fbytes", "300,001 bytes")
    console.page.click(".message summary")
    console.sees("the first 192 KiB of 293 KiB")
    console.show("#/stream/long", "the last 3")
    console.write("Text to search for", "END 1")
    console.write("Condition on a value in JSON", "id = 1")
    console.press("Search")
    console.sees("1 found")
    saved = console.page.run(
        "const [file] = await Promise.all([page.waitForEvent('download'),"
        " page.getByRole('button', {name: 'Download', exact: true}).first().click()]);"
        "await file.saveAs(args.place); return args.place",
        place=str(tmp_path / "long.ndjson"),
    )
    assert json.loads(Path(saved).read_text())["end"] == "end 1"


# ── Who is asking ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House.open(tmp_path_factory.mktemp("house"), "memory") as house:
        shop = Shop(house.server.url, house.owner.token)
        shop.open()
        yield house
        shop.http.close()


def test_signing_in_and_out(browser: Browser, house: House) -> None:
    console = Console(browser, house.server.url)
    console.show("#/groups", "This server has access control")
    console.check()
    console.picture("sign-in")
    console.write("Key or token", "hw_wrong")
    console.press("Sign in")
    console.sees("does not know this key")
    console.check()
    console.write("Key or token", house.owner.token or "")
    console.press("Sign in")
    console.sees("kitchen", "Sign out", "Subscriptions")
    console.show("#/account", "may administer it", "**")
    console.press("Sign out")
    console.sees("This server has access control")
    assert console.page.evaluate("return sessionStorage.length") == 0
    console.close()


def test_what_a_key_may_not_do_is_not_offered(browser: Browser, house: House) -> None:
    console = Console(browser, house.server.url)
    guest = house.guest(read=["shop/orders"])
    console.show("#/streams", "This server has access control")
    console.write("Key or token", guest.token or "")
    console.press("Sign in")
    console.sees("shop/orders")
    assert "shop/customers" not in console.page.text("main")
    assert not console.has("Subscriptions")
    assert not console.has("SQL")
    console.show(ORDERS, "may read this stream and not append", "the last 200")
    assert not console.has("Delete")
    assert not console.has("Close")
    console.check()
    console.show("#/group/shop%2Forders/kitchen", "not use or change it")
    assert not console.has("Pause")
    console.show("#/storage", "needs a key or token that may administer everything")
    console.show("#/", "for its administrators")
    console.show("#/stream/shop%2Fcustomers", "forbidden")
    console.show("#/account", "May read", "shop/orders")
    console.close()


@pytest.mark.parametrize("place", ["#/groups", "#/", ORDERS])
def test_a_key_that_is_revoked_meanwhile(browser: Browser, house: House, place: str) -> None:
    key_id, guest = house.key_guest(admin=["**"])
    console = Console(browser, house.server.url)
    console.show(place, "This server has access control")
    console.write("Key or token", guest.token or "")
    console.press("Sign in")
    console.sees("Sign out", "shop/orders")
    house.revoke(key_id)
    console.sees("no longer accepted: it has expired or was revoked")
    assert not console.has("Sign out")
    assert not console.has("Groups")
    assert console.page.evaluate("return sessionStorage.length") == 0
    console.check()
    # Whoever signs in again is where they were.
    console.write("Key or token", house.owner.token or "")
    console.press("Sign in")
    console.sees("Sign out", "shop/orders")
    console.close()


def test_a_server_that_was_away_is_found_again(browser: Browser, tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        httpx.put(server.stream_url("s"), headers=JSON, content=b'["before"]')
        console = Console(browser, server.url)
        console.show("#/stream/s", "before")
        server.kill()
        console.page.wait_for("return document.querySelector('#health').className === 'bad'")
        server.start()
        httpx.post(server.stream_url("s"), headers=JSON, content=b'["after"]')
        console.sees("after", "ready")
        # So is one that was not there when the page was opened.
        server.kill()
        console.page.evaluate("location.hash = '#/streams'")
        console.sees("The server does not answer.", "Try again")
        server.start()
        console.sees("New stream", "application/json")
        console.close()
