"""The shop in a real browser: workers are killed, and each order is shipped once."""

from __future__ import annotations

from examples.orders.app import PAGE
from tests.examples.running import running
from tests.support.browser import Browser, Page

COMMAND = ("-m", "examples.orders", "--port", "{port}", "--no-spark")


def shipped(page: Page, count: int) -> None:
    page.wait_for(
        "return document.querySelector('#shipments').textContent === String(args.count)"
        " && document.querySelector('#n-shipped').textContent === String(args.count)",
        patience_s=120,
        count=count,
    )


def test_each_order_is_shipped_once_whoever_dies(browser: Browser) -> None:
    with running(*COMMAND, "--packing", "0.4") as url:
        page = browser.open(url)
        page.wait_for_text("kill −9")
        other = page.tab(url)
        page.click("text=Order ten")
        page.click("text=Order a lamp")
        # In the other window too, and being packed there.
        other.wait_for("return document.querySelectorAll('#packing li').length > 0")
        other.click("#worker-ann .kill")
        other.wait_for("return !document.querySelector('#worker-ann.works')")
        page.click("text=Order a kettle")
        page.wait_for(
            "return document.querySelector('#n-shipped').textContent > 2"
            " && document.querySelectorAll('#packing li').length > 0"
            " && !document.querySelector('#worker-ann.works')"
        )
        page.picture(PAGE.with_suffix(".png"), width=1000, height=760)
        other.click("#worker-ben .kill")
        other.click("#worker-cleo .quiet")
        for window in (page, other):
            shipped(window, 12)
            assert window.text("#twice") == "0"
            assert window.text("#problem") == ""
            assert window.errors == []
            window.close()


def test_an_order_that_is_refused_leaves_the_screen(browser: Browser) -> None:
    with running(*COMMAND, "--packing", "0.1") as url:
        page = browser.open(url)
        page.wait_for_text("kill −9")
        page.run(
            "await context.route('**/v1/transaction', (route) => route.fulfill({status: 403,"
            " headers: {'Access-Control-Allow-Origin': '*'}, contentType: 'application/json',"
            """ body: '{"error": {"code": "forbidden", "message": "the shop is closed"}}'}))"""
        )
        page.click("text=Order a teapot")
        page.wait_for_text("the shop is closed")
        assert page.texts("#placed li") == []
        page.run("await context.unroute('**/v1/transaction')")
        page.click("text=Order a teapot")
        shipped(page, 1)
        page.close()
