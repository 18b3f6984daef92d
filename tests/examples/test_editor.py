"""The editor in real browsers: two people, their cursors, and offline edits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.editor.app import HERE, build, pages
from examples.ports import free_port
from tests.support import node_packages
from tests.support.browser import Browser, Page
from tests.support.server import ServerProcess

TEXT = "return window.session?.text() ?? ''"


@pytest.fixture(scope="module")
def bundle() -> None:
    node_packages.install(HERE, needed_by="the editor")
    build()


@pytest.fixture
def place(bundle: None, tmp_path: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A server, and the address of the page."""
    port = free_port()
    with (
        ServerProcess(
            *("--data", str(tmp_path / "data"), "--documents", "--documents-compact-bytes", "2000"),
            *("--cors-origin", f"http://127.0.0.1:{port}"),
        ) as server,
        pages(server.url, port) as address,
    ):
        yield server, address


def opened(browser: Browser, address: str, document: str) -> Page:
    page = browser.open(f"{address}/#{document}")
    page.wait_for("return window.session?.connection.connected")
    return page


def type_in(page: Page, words: str) -> None:
    page.click(".cm-content")
    page.run(
        "await page.keyboard.press('Control+End'); await page.keyboard.type(args.words)",
        words=words,
    )


def await_words(page: Page, *words: str) -> None:
    page.wait_for(
        "const text = window.session.text(); return args.words.every(w => text.includes(w))",
        words=words,
    )


def await_same(*pages: Page) -> str:
    """Until all show the same, and all of it is stored."""
    for page in pages:
        page.wait_for("return window.session.isStored() && window.session.connection.connected")
    first = str(pages[0].evaluate(TEXT))
    for page in pages[1:]:
        page.wait_for("return window.session.text() === args.text", text=first)
    return first


def test_two_people(browser: Browser, place: tuple[ServerProcess, str], tmp_path: Path) -> None:
    _, address = place
    ada, grace = opened(browser, address, "two"), opened(browser, address, "two")
    type_in(ada, "The first line.")
    await_words(grace, "The first line.")
    type_in(grace, " And more.")
    await_words(ada, "And more.")
    # Cursors, with names.
    ada.wait_for("return document.querySelectorAll('.cm-ySelectionInfo').length > 0")
    ada.wait_for("return document.querySelectorAll('#people span').length === 2")
    # The strip has times of the other's keys.
    ada.wait_for("return /median \\d+ ms/.test(document.getElementById('times-label').textContent)")
    await_same(ada, grace)
    ada.screenshot(tmp_path / "editor.png", width=1100, height=640)
    assert ada.errors == grace.errors == []
    for page in (ada, grace):
        page.close()


def test_offline_edits(browser: Browser, place: tuple[ServerProcess, str]) -> None:
    _, address = place
    ada, grace = opened(browser, address, "offline"), opened(browser, address, "offline")
    type_in(ada, "before ")
    await_words(grace, "before")
    ada.click("#network")
    ada.wait_for_text("offline")
    type_in(ada, "written-offline ")
    type_in(grace, "written-meanwhile ")
    ada.wait_for_text("not everything is stored")
    ada.click("#network")
    for page in (ada, grace):
        await_words(page, "before", "written-offline", "written-meanwhile")
    await_same(ada, grace)
    for page in (ada, grace):
        page.close()


def test_the_command_says_what_it_takes() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "examples.editor", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--server" in shown.stdout
