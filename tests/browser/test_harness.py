"""The browser that other tests use does what `tests/support/browser.py` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser, BrowserError
from tests.support.server import ServerProcess

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_page_of_the_server(browser: Browser, server: ServerProcess, tmp_path: Path) -> None:
    page = browser.open(f"{server.url}/console/")
    assert page.evaluate("return (await fetch('/healthz')).status") == 200
    assert page.evaluate("return args.a + args.b", a=1, b=2) == 3
    assert page.run("return page.url()") == f"{server.url}/console/"
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(PNG)
    assert page.errors == []
    page.close()


def test_tabs_share_storage_and_browsers_do_not(browser: Browser, server: ServerProcess) -> None:
    first = browser.open(f"{server.url}/healthz")
    first.evaluate("localStorage.setItem('name', 'Ada')")
    read = "return localStorage.getItem('name')"
    second, other = first.tab(f"{server.url}/healthz"), browser.open(f"{server.url}/healthz")
    assert second.evaluate(read) == "Ada"
    assert other.evaluate(read) is None
    for page in (first, second, other):
        page.close()


def test_a_condition_that_never_comes_true_says_what_is_there(browser: Browser) -> None:
    page = browser.open()
    page.evaluate("document.body.textContent = 'nobody here'")
    with pytest.raises(BrowserError, match="nobody here"):
        page.wait_for("return false", patience_s=0.1)
    page.close()


def test_errors_of_a_script_and_of_a_page(browser: Browser) -> None:
    page = browser.open()
    with pytest.raises(BrowserError, match="no such thing"):
        page.evaluate("throw new Error('no such thing')")
    page.evaluate("setTimeout(() => { throw new Error('later') }); await new Promise(setTimeout)")
    assert "later" in page.errors[0]
    page.close()
