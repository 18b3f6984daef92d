"""The console, as the tutorial comes to it. All of the tutorial is in tests/spark/test_up.py."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import TUTORIAL, Block, Page
from tests.docs.pasting import Shell, blocks_to_run, needs_shell
from tests.support.browser import Browser
from tests.support.server import ServerProcess


def before(heading: str) -> list[Block]:
    page = Page(TUTORIAL)
    end = page.text[: page.text.index(f"\n## {heading}\n")].count("\n")
    return [block for block in blocks_to_run(TUTORIAL) if block.line < end]


def test_every_command_and_program_is_run() -> None:
    """Except for the start of the server, and of Spark: the tests have both already."""
    left_out = [block.text for block in Page(TUTORIAL).blocks if not block.run]
    assert left_out == ["make run\n", left_out[1], "python letters.py\n"]
    assert left_out[1].startswith("Headwater ")


@needs_shell
def test_the_console_shows_what_was_written_and_follows(browser: Browser, tmp_path: Path) -> None:
    with ServerProcess("--memory") as server:
        blocks = before("Look at it in the console")
        shell = Shell(blocks, tmp_path, server.port)
        try:
            assert shell.wait() == 0
            for block in blocks:
                shell.check(block)
            page = browser.open(f"{server.url}/")
            page.click("text=Streams")
            page.click("text=rooms/lobby")
            page.wait_for_text("Can you see this?")
            another = Block("sh", 'headwater append rooms/lobby \'{"text": "later"}\'\n', line=0)
            appending = Shell([another], tmp_path, server.port)
            assert appending.wait() == 0
            page.wait_for_text("later")
        finally:
            shell.end()
