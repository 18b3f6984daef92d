"""Every example of the documentation does what the page says it does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from tests.support.server import ServerProcess

PAGES = (
    README,
    TUTORIAL,
    HTTP_REFERENCE,
    GROUPS_REFERENCE,
    LIVE_REFERENCE,
    SUBSCRIPTIONS_REFERENCE,
)
DOCUMENTED_PORT = ":4437"
SCRIPT_TIMEOUT_S = 180
BACKGROUND_TIMEOUT_S = 60
EVENT_SOURCE = Path(__file__).parent / "event_source.mjs"

needs_shell = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl"
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def named(blocks: Sequence[Block]) -> list[object]:
    return [pytest.param(block, id=f"line {block.line}") for block in blocks]


# ── Shell ────────────────────────────────────────────────────────────────────────────────────


def wait_until(condition: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Shell:
    """The shell blocks of one page, pasted into one shell from top to bottom."""

    def __init__(self, blocks: Sequence[Block], directory: Path, port: int) -> None:
        self._blocks = blocks
        self._directory = directory
        self._port = f":{port}"
        # The meter that curl draws when nobody watches would be in the way.
        (directory / ".curlrc").write_text("silent\nshow-error\n")
        script = "set -e\n" + "".join(map(self._step, blocks))
        environment = os.environ | {
            "CURL_HOME": str(directory),
            "NO_PROXY": "*",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "STREAM_URL": f"http://127.0.0.1:{port}",
        }
        self._process = subprocess.Popen(
            ["bash", "-c", script.replace(DOCUMENTED_PORT, self._port)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _step(self, block: Block) -> str:
        output = f"block-{block.line}"
        if block.background:
            # A person would look at it before going on.
            seen = f"until [ -e {output}-seen ]; do sleep 0.05; done\n"
            return f"(\n{block.text}) >{output} 2>&1 &\n{seen}"
        if block.language == "python":
            return f"python - <<'END-OF-PROGRAM' >{output} 2>&1\n{block.text}END-OF-PROGRAM\n"
        return f"exec >{output} 2>&1\n{block.text}"

    def wait(self) -> int:
        """Wait until all blocks are through; those in the background may go on."""
        for block in self._blocks:
            if block.background:
                self.settled_output(block)
                (self._directory / f"block-{block.line}-seen").touch()
        return self._process.wait(SCRIPT_TIMEOUT_S)

    def output(self, block: Block) -> str:
        path = self._directory / f"block-{block.line}"
        if not path.exists():
            return "(it did not run: a block before it failed)"
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        return text.replace(self._port, DOCUMENTED_PORT)

    def settled_output(self, block: Block) -> str:
        """The output, as soon as it is as expected: a background block prints in its own time."""
        patience_s = BACKGROUND_TIMEOUT_S if block.background else 0
        wait_until(lambda: block.missing_from(self.output(block)) is None, patience_s)
        return self.output(block)

    def end(self) -> None:
        """End the shell and what it left in the background."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def blocks_to_run(page: Path) -> list[Block]:
    return [block for block in Page(page).blocks if block.run]


@contextmanager
def pasted(blocks: Sequence[Block], directory: Path) -> Iterator[Shell]:
    """A shell on a fresh server, when all blocks have run in it."""
    with ServerProcess("--data", str(directory / "data")) as server:
        shell = Shell(blocks, directory, server.port)
        try:
            shell.wait()
            yield shell
        finally:
            shell.end()


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
    output = shell_of(page).settled_output(block)
    missing = block.missing_from(output)
    assert missing is None, f"{block.text}\nprinted\n\n{output}\n\nwhich lacks {missing}"
    if not block.background:
        assert "curl: (" not in output, output


@needs_shell
def test_a_follower_sees_what_the_tutorial_appends_later(
    shell_of: Callable[[Path], Shell],
) -> None:
    (follower,) = [block for block in blocks_to_run(TUTORIAL) if block.background]
    later = 'data:[{"from": "ada", "text": "Can you see this?"}]'
    assert wait_until(lambda: later in shell_of(TUTORIAL).output(follower), BACKGROUND_TIMEOUT_S)


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


# ── Python ───────────────────────────────────────────────────────────────────────────────────


def python_blocks() -> list[Block]:
    return [block for block in Page(TUTORIAL).blocks if block.language == "python"]


@pytest.mark.parametrize("block", named(python_blocks()))
def test_programs_of_the_tutorial(block: Block, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SCRIPT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert block.expected, f"line {block.line} shows no output"
    assert block.missing_from(done.stdout) is None, done.stdout


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
