"""The console in a browser, and a shop for it to show."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.browser import HARNESS, Browser, Page

JSON: Final = {"Content-Type": "application/json"}
TOUR: Final = os.environ.get("HEADWATER_TOUR")
"""Where pictures for the docs go, if they are wanted: `make tour`."""
GUIDE: Final = HARNESS.parent.parent / "docs" / "howto" / "console.md"
_AXE: Final = HARNESS / "node_modules" / "axe-core" / "axe.min.js"
NARROW, WIDE = (390, 844), (1280, 860)


class Console:
    """One tab that shows the console of a server."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.page: Page = browser.open()

    def show(
        self, place: str, *texts: str, size: tuple[int, int] = WIDE, dark: bool = False
    ) -> None:
        """Open a page of the console and wait until it shows something."""
        self.page.run(
            "await page.setViewportSize(args.size);"
            "await page.emulateMedia({colorScheme: args.scheme, reducedMotion: 'reduce'});"
            # Another document first: the same page with another hash would not begin anew.
            "await page.goto('about:blank'); await page.goto(args.url)",
            url=f"{self.url}/console/{place}",
            size={"width": size[0], "height": size[1]},
            scheme="dark" if dark else "light",
        )
        self.sees(*texts)

    def sees(self, *texts: str) -> None:
        for text in texts:
            self.page.wait_for_text(text)

    def press(self, name: str) -> None:
        """Press a button by its name."""
        self.page.run(
            "await page.getByRole('button', {name: args.name, exact: true}).first().click()",
            name=name,
        )

    def keys(self, *keys: str) -> None:
        # In one go, so that two keys that belong together come together on a slow machine too.
        self.page.run("for (const key of args.keys) await page.keyboard.press(key)", keys=keys)

    def go(self, letter: str, place: str) -> None:
        """Press "g" and a letter, again if a slow machine took too long over it."""
        for _ in range(5):
            self.keys("g", letter)
            with suppress(AssertionError):
                self.page.wait_for(
                    "return location.hash === args.place", patience_s=10, place=place
                )
                return
        raise AssertionError(f"g {letter} does not lead to {place}")

    def write(self, label: str, text: str) -> None:
        self.page.run(
            "await page.getByLabel(args.label, {exact: true}).fill(args.text)",
            label=label,
            text=text,
        )

    def choose(self, label: str, value: str) -> None:
        self.page.run(
            "await page.getByLabel(args.label, {exact: true}).selectOption(args.value)",
            label=label,
            value=value,
        )

    def values(self) -> list[Any]:
        """The JSON messages that are listed."""
        return [json.loads(text) for text in self.page.texts(".messages .message .value")]

    def has(self, name: str) -> bool:
        """Whether there is a button or link of that name."""
        script = (
            "return await page.getByRole('button', {name: args.name, exact: true}).count()"
            " + await page.getByRole('link', {name: args.name, exact: true}).count()"
        )
        return bool(self.page.run(script, name=name))

    def check(self) -> None:
        """Nobody is shut out, nothing is wider than the screen, and nothing was thrown."""
        script = _AXE.read_text() + (
            "; const found = await axe.run(document, {resultTypes: ['violations']});"
            "return found.violations.map((one) => one.id + ': ' + one.nodes.map("
            "(node) => node.html.slice(0, 200) + ' ' + node.failureSummary).join(' | '))"
        )
        violations = self.page.evaluate(script)
        assert not violations, "\n".join(violations)
        wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        shown, there = self.page.evaluate(wide)
        assert shown <= there, "the page has to be scrolled sideways"
        assert self.page.errors == []

    def picture(self, name: str) -> None:
        """For the docs, if pictures are wanted and this is one of them."""
        if TOUR is not None and f"images/console/{name}.png" in GUIDE.read_text():
            directory = Path(TOUR)
            directory.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(directory / f"{name}.png", width=WIDE[0], height=WIDE[1])

    def close(self) -> None:
        assert self.page.errors == []
        self.page.close()


class Shop:
    """Streams as people have them."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=f"{url}/v1/stream/", headers=headers, timeout=60)

    def put(self, path: str, content_type: str = "application/json", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.http.put(path, headers={"Content-Type": content_type} | named)
        assert answer.status_code in (200, 201), answer.text

    def post(self, path: str, body: Any) -> httpx.Response:
        answer = self.http.post(path, headers=JSON, content=json.dumps(body))
        assert answer.status_code < 300, answer.text
        return answer

    def append(self, path: str, content: bytes, content_type: str) -> None:
        answer = self.http.post(path, headers={"Content-Type": content_type}, content=content)
        assert answer.status_code == 204, answer.text

    def count(self, path: str) -> int:
        messages: int = self.http.get(f"{path}/_details").json()["messages"]
        return messages

    def open(self) -> None:
        self.put("shop/orders", Stream_Description="every order of the shop")
        items = ["tea", "cake", "coffee", "bread"]
        for number in range(25):
            orders = [
                {
                    "id": number * 20 + at,
                    "item": items[(number + at) % 4],
                    "total": (number * 7 + at * 3) % 40,
                    "customer": {"name": f"customer {at % 9}", "tags": ["new", "eu"]},
                }
                for at in range(20)
            ]
            stamp = {"Producer-Id": "till-1", "Producer-Epoch": "0", "Producer-Seq": str(number)}
            self.http.post("shop/orders", headers=JSON | stamp, content=json.dumps(orders))
        self._customers()
        self._work()
        self.put("shop/pictures", "image/png")
        self.append("shop/pictures", picture_bytes(), "image/png")
        self.put("shop/raw", "application/octet-stream")
        self.append("shop/raw", bytes(range(256)), "application/octet-stream")
        self.put("shop/notes", "text/plain")
        self.append("shop/notes", b"first line\nsecond line", "text/plain")
        self.put("shop/gone")
        self.http.delete("shop/gone")

    def bustle(self, seconds: float) -> None:
        """Have something to do for a while, now more and now less."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0:
            many = 1 + round(20 * (1 + math.sin(left_s / 4)) * random.random())
            self.post("shop/events", [{"id": number, "note": "x" * 200} for number in range(many)])
            time.sleep(0.02)

    def _customers(self) -> None:
        self.put("shop/customers")
        profile = {"kind": "state-protocol", "touch": {"enabled": True}}
        self.post("shop/customers/_profile", {"profile": profile})
        for number in range(30):
            row = {"name": f"customer {number % 9}", "visits": number}
            key = f"c{number % 9:03}"
            change = {"type": "customer", "key": key, "value": row}
            self.post("shop/customers", {**change, "headers": {"operation": "upsert"}})
        gone = {"type": "customer", "key": "c008", "headers": {"operation": "delete"}}
        self.post("shop/customers", gone)
        fields = [{"name": "name", "encoding": "string"}]
        template = {"entity": "customer", "fields": fields}
        self.post("shop/customers/touch/templates/activate", {"templates": [template]})
        tail = self.http.get("shop/customers/_details").json()["tail"]
        self.http.put(f"shop/customers/_snapshots/{tail}", headers=JSON, content=b"[]")

    def _work(self) -> None:
        settings = {"max_deliveries": 1, "dead_letter": "shop/failed", "ack_timeout_ms": 600_000}
        self.http.put("shop/orders/_groups/kitchen", json=settings)
        fetched = self.post("shop/orders/_groups/kitchen/fetch", {"consumer": "ann", "max": 5})
        receipts = [one["receipt"] for one in fetched.json()["messages"]]
        self.post("shop/orders/_groups/kitchen/reject", {"receipts": receipts[:3]})
        wakes = {"type": "pull-wake", "pattern": "shop/*", "wake_stream": "wakes"}
        self.http.put("__ds/subscriptions/mail", json=wakes)


def picture_bytes() -> bytes:
    """A small PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    size = 64
    lines = b"".join(
        b"\0" + bytes(part for x in range(size) for part in (4 * x, 4 * y, 128))
        for y in range(size)
    )
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
