"""The editor in real browsers: two people, their cursors, offline edits, a killed server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from examples.editor.app import HERE, Pages, build
from examples.local import free_port, web_server
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
        web_server(partial(Pages, server.url), port) as address,
    ):
        yield server, address


def opened(browser: Browser, address: str, document: str) -> Page:
    page = browser.open(f"{address}#{document}")
    page.wait_for("return window.session?.connection.connected")
    return page


def type_in(page: Page, words: str) -> None:
    """At the end."""
    page.click(".cm-content")
    page.run("await page.keyboard.press('Control+End')")
    type_on(page, words)


def type_on(page: Page, words: str) -> None:
    """Where the cursor is."""
    page.run("await page.focus('.cm-content'); await page.keyboard.type(args.words)", words=words)


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


@pytest.mark.crash
def test_the_server_is_killed_while_two_people_write(
    browser: Browser, place: tuple[ServerProcess, str]
) -> None:
    """Nothing of what they typed before, meanwhile or afterwards is lost, or there twice."""
    server, address = place
    ada, grace = opened(browser, address, "killed"), opened(browser, address, "killed")
    # Each has a line of her own, so that their words do not mix.
    said = {"ada": "", "grace": ""}

    def say(when: str, *who: str) -> None:
        for name, page in (("ada", ada), ("grace", grace)):
            if name in who:
                type_on(page, f"{name}-{when} ")
                said[name] += f"{name}-{when} "

    type_in(ada, "\n")
    ada.run("await page.keyboard.press('Control+Home')")
    say("begins", "ada")
    await_words(grace, "ada-begins")
    type_in(grace, "")
    for kill in range(3):
        # Nobody waits until the last words are stored, or shown elsewhere.
        say(f"before-{kill}", "ada", "grace")
        server.kill()
        say(f"meanwhile-{kill}", "ada", "grace")
        if kill == 1:
            # One of them also says that she is offline, and is back after the server.
            ada.click("#network")
            ada.wait_for_text("offline")
            say(f"offline-{kill}", "ada")
        grace.wait_for_text("not everything is stored")
        server.start()
        say(f"after-{kill}", "grace")
        if kill == 1:
            ada.click("#network")
        for page in (ada, grace):
            await_words(page, *said.values())
    text = await_same(ada, grace)
    assert text == "\n".join(said.values())
    joined = opened(browser, address, "killed")
    assert await_same(ada, joined) == text
    shown = httpx.get(f"{server.url}/v1/yjs/editor/docs/killed?state=text&name=content", timeout=60)
    assert shown.text == text
    assert "Traceback" not in server.stderr
    for page in (ada, grace, joined):
        page.close()


@pytest.mark.crash
def test_what_is_deleted_without_a_server(
    browser: Browser, place: tuple[ServerProcess, str]
) -> None:
    server, address = place
    ada, grace = opened(browser, address, "deleted"), opened(browser, address, "deleted")
    type_in(ada, "0123456789")
    await_words(grace, "0123456789")
    # Two deletions that a third one joins: all that is deleted then takes fewer bytes to say.
    for at in (2, 3):
        take_out(ada, at)
    grace.wait_for("return window.session.text() === '01356789'")
    await_same(ada, grace)
    server.kill()
    take_out(ada, 2)
    ada.wait_for("return window.session.text() === '0156789'")
    ada.wait_for_text("not everything is stored")
    server.start()
    grace.wait_for("return window.session.text() === '0156789'")
    assert await_same(ada, grace) == "0156789"
    for page in (ada, grace):
        page.close()


def take_out(page: Page, at: int) -> None:
    """Delete the character at a place."""
    page.click(".cm-content")
    page.run(
        "await page.keyboard.press('Control+Home');"
        "for (let n = 0; n < args.at; n++) await page.keyboard.press('ArrowRight');"
        "await page.keyboard.press('Delete')",
        at=at,
    )


def test_the_command_says_what_it_takes() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "examples.editor", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--server" in shown.stdout
