"""Every example of the documentation does what the page says it does."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.docs.markdown import (
    GROUPS_REFERENCE,
    HTTP_REFERENCE,
    LIVE_REFERENCE,
    README,
    SUBSCRIPTIONS_REFERENCE,
    TUTORIAL,
    Block,
    Page,
)
from tests.docs.pasting import (
    DOCUMENTED_PORT,
    SCRIPT_TIMEOUT_S,
    Shell,
    blocks_to_run,
    needs_shell,
    pasted,
)
from tests.support.server import ServerProcess

PAGES = (
    README,
    HTTP_REFERENCE,
    GROUPS_REFERENCE,
    LIVE_REFERENCE,
    SUBSCRIPTIONS_REFERENCE,
)
EVENT_SOURCE = Path(__file__).parent / "event_source.mjs"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


@pytest.fixture(scope="module")
def shell_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Shell]]:
    """The shell of a page, which runs once for all tests."""
    with ExitStack() as running:

        @cache
        def shell_of(page: Path) -> Shell:
            directory = tmp_path_factory.mktemp(page.stem)
            return running.enter_context(pasted(blocks_to_run(page), directory))

        yield shell_of


def every_block() -> list[object]:
    return [
        pytest.param(page, block, id=f"{page.stem}, line {block.line}")
        for page in PAGES
        for block in blocks_to_run(page)
    ]


@needs_shell
@pytest.mark.parametrize("page, block", every_block())
def test_examples_pasted_from_top_to_bottom(
    shell_of: Callable[[Path], Shell], page: Path, block: Block
) -> None:
    shell_of(page).check(block)


@needs_shell
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_last_command_of_a_page_succeeds(shell_of: Callable[[Path], Shell], page: Path) -> None:
    assert shell_of(page).wait() == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_with_curl_is_run(page: Path) -> None:
    """A block that somebody forgot to mark would never be tested."""
    forgotten = [b.line for b in Page(page).blocks if "curl" in b.text and not b.run]
    assert forgotten == []


@needs_shell
def test_the_key_of_the_readme_opens_the_server_after_a_restart(tmp_path: Path) -> None:
    """Once there is a key, the next start asks for one: readers must not lock themselves out."""
    (keys,) = [block for block in blocks_to_run(README) if "keys create" in block.text]
    keep = Block("sh", 'echo "$HEADWATER_TOKEN" >key\n', line=0, run=True)
    with pasted([keys, keep], tmp_path):
        pass
    key = (tmp_path / "key").read_text().strip()
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        url = f"http://127.0.0.1:{server.port}/v1/streams"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": f"Bearer {key}"}).status_code == 200


# ── The browser ──────────────────────────────────────────────────────────────────────────────


@needs_shell
@needs_node
def test_the_page_that_follows_a_stream(start_server: StartServer, tmp_path: Path) -> None:
    """Over several connections, each message is shown once."""
    server = start_server("--memory", "--sse-lifetime-ms", "100")
    url = server.stream_url("rooms/lobby")
    shown = tmp_path / "shown"

    def curl(*arguments: str) -> None:
        command = ["curl", "-sSf", "-H", "Content-Type: application/json", *arguments, url]
        subprocess.run(command, check=True)

    def connections() -> int:
        return shown.read_text().count("(connected)")

    def messages() -> list[str]:
        return [line for line in shown.read_text().splitlines() if line != "(connected)"]

    curl("-X", "PUT")
    expected: list[str] = []
    with shown.open("w") as output:
        browser = subprocess.Popen(["node", str(page_as_script(server, tmp_path))], stdout=output)
    try:
        while connections() < 3 and len(expected) < 500:
            number = len(expected)
            curl(
                "-X", "POST", "-d", f'[{{"from":"ada","text":{number}}},{{"from":"bob","text":1}}]'
            )
            expected += [f"ada: {number}", "bob: 1"]
            time.sleep(0.05)
        curl("-X", "POST", "-H", "Stream-Closed: true")
        assert browser.wait(SCRIPT_TIMEOUT_S) == 0
    finally:
        browser.kill()
        browser.wait()
    assert messages() == expected
    assert connections() >= 3


def page_as_script(server: ServerProcess, directory: Path) -> Path:
    """The script of the page in the tutorial, with a stand-in for the browser around it."""
    html = next(block.text for block in Page(TUTORIAL).blocks if block.language == "html")
    found = re.search(r"<script>(.*)</script>", html, re.DOTALL)
    assert found is not None
    path = directory / "tail.mjs"
    script = found[1].replace(DOCUMENTED_PORT, f":{server.port}")
    path.write_text(f'import "{EVENT_SOURCE.as_uri()}";\n{script}')
    return path
