"""A real browser for tests: Chromium without a window, driven over a pipe.

    def test_the_page_greets(browser: Browser, server: ServerProcess, tmp_path: Path) -> None:
        page = browser.open(f"{server.url}/console/")
        page.fill("#name", "Ada")
        page.click("text=Greet")
        page.wait_for("return document.title === args.title", title="Hello Ada")
        assert page.evaluate("return await (await fetch('/healthz')).status") == 200
        page.screenshot(tmp_path / "greeting.png")

Scripts are bodies of async functions; keyword arguments are available as `args`, and results are
returned as JSON. `page.evaluate` runs one in the page, `page.run` in node, with Playwright's `page`
and `context` for everything that has no method here. `browser.open` opens a separate browser, with
its own storage and cookies; `page.tab` opens another tab of the same one. Nothing here sleeps:
`wait_for` waits for a condition, and if that never comes true, reports what the page shows.

If there is no browser, the `browser` fixture of `tests/conftest.py` skips with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support import node_packages

HARNESS = Path(__file__).parent.parent / "browser"
PATIENCE_S = 60.0


class BrowserError(AssertionError):
    """A script failed, or a condition never came true; the message says what the page shows."""


class Browser:
    """One Chromium process. A test that cannot get one is skipped."""

    def __init__(self) -> None:
        try:
            node_packages.install(HARNESS, needed_by="tests in a browser")
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"no browser for tests: {error}")
        self._bridge = subprocess.Popen(
            ["node", str(HARNESS / "bridge.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.version = str(self._answer())
        except BrowserError as error:
            self.close()
            pytest.skip(f"no browser for tests: {error}")

    def open(self, url: str | None = None) -> Page:
        """A page in a separate browser, at `url`."""
        return self._page(url, None)

    def command(self, **command: Any) -> Any:
        assert self._bridge.stdin is not None
        self._bridge.stdin.write(json.dumps(command) + "\n")
        self._bridge.stdin.flush()
        return self._answer()

    def _page(self, url: str | None, beside: int | None) -> Page:
        page = Page(self, self.command(do="open", beside=beside))
        if url is not None:
            page.goto(url)
        return page

    def _answer(self) -> Any:
        assert self._bridge.stdout is not None
        line = self._bridge.stdout.readline()
        if not line:
            raise BrowserError(f"the browser's process ended with {self._bridge.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        assert self._bridge.stdin is not None
        assert self._bridge.stdout is not None
        with suppress(BrokenPipeError):
            self._bridge.stdin.close()
        try:
            self._bridge.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._bridge.kill()
            self._bridge.wait()
        self._bridge.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Page:
    """A tab."""

    def __init__(self, browser: Browser, number: int) -> None:
        self._browser = browser
        self._number = number

    def tab(self, url: str | None = None) -> Page:
        """Another tab of the same browser: it shares storage, cookies and workers with this one."""
        return self._browser._page(url, self._number)

    def run(self, script: str, **args: Any) -> Any:
        """Run a script in node, with Playwright's `page` and `context`."""
        return self._do("node", script=script, args=args)

    def evaluate(self, script: str, **args: Any) -> Any:
        """Run a script in the page."""
        return self._do("page", script=script, args=args)

    def wait_for(self, script: str, *, patience_s: float = PATIENCE_S, **args: Any) -> Any:
        """Run a script in the page until it returns something true, and return that."""
        return self._do("wait", script=script, args=args, ms=patience_s * 1000)

    def wait_for_text(self, text: str, *, patience_s: float = PATIENCE_S) -> None:
        """Wait until the page shows `text`."""
        self.wait_for(
            "return document.body.innerText.includes(args.text)", patience_s=patience_s, text=text
        )

    def goto(self, url: str) -> None:
        self.run("await page.goto(args.url)", url=url)

    def reload(self) -> None:
        self.run("await page.reload()")

    def click(self, selector: str) -> None:
        self.run("await page.click(args.selector)", selector=selector)

    def fill(self, selector: str, text: str) -> None:
        self.run("await page.fill(args.selector, args.text)", selector=selector, text=text)

    def text(self, selector: str) -> str:
        """What the element shows. Waits until it exists."""
        return str(self.run("return await page.innerText(args.selector)", selector=selector))

    def texts(self, selector: str) -> list[str]:
        """What each of the current elements shows."""
        script = "return await page.locator(args.selector).allInnerTexts()"
        return [str(text) for text in self.run(script, selector=selector)]

    def screenshot(self, path: Path, *, width: int = 1200, height: int = 750) -> None:
        self.run(
            "await page.setViewportSize(args.size); await page.screenshot({path: args.path})",
            size={"width": width, "height": height},
            path=str(path),
        )

    def picture(self, path: Path, *, width: int = 1200, height: int = 750) -> None:
        """A screenshot for a README: taken again if `PICTURES` is set; must exist."""
        if os.environ.get("PICTURES"):
            self.screenshot(path, width=width, height=height)
        assert path.exists(), f"run this test with PICTURES=1 to take {path.name}"

    @property
    def errors(self) -> list[str]:
        """Uncaught errors of the page."""
        return [str(error) for error in self._do("errors")]

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str, **command: Any) -> Any:
        return self._browser.command(do=what, page=self._number, **command)
