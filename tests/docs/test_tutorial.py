"""The tutorial from top to bottom on one server, except for what needs Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.markdown import TUTORIAL, Block, Page
from tests.docs.pasting import Shell, blocks_to_run, needs_shell
from tests.support.browser import Browser
from tests.support.server import ServerProcess


def needs_spark(block: Block) -> bool:
    return block.repeated or "rooms/letters -n" in block.text


class Read(NamedTuple):
    """The tutorial, when a reader is through with it."""

    server: ServerProcess
    directory: Path
    shell: Shell
    blocks: list[Block]
    ended: int


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    directory = tmp_path_factory.mktemp("tutorial")
    blocks = [block for block in blocks_to_run(TUTORIAL) if not needs_spark(block)]
    with ServerProcess("--memory") as server:
        shell = Shell(blocks, directory, server.port)
        try:
            yield Read(server, directory, shell, blocks, shell.wait())
        finally:
            shell.end()


@needs_shell
def test_what_a_reader_sees(read: Read) -> None:
    for block in read.blocks:
        read.shell.check(block)
    assert read.ended == 0


@needs_shell
def test_the_console_shows_what_was_written_and_follows(read: Read, browser: Browser) -> None:
    page = browser.open(f"{read.server.url}/")
    page.click("text=Streams")
    page.click("text=rooms/lobby")
    page.wait_for_text("Can you see this?")
    another = Block("sh", 'headwater append rooms/lobby \'{"text": "later"}\'\n', line=0)
    assert Shell([another], read.directory, read.server.port).wait() == 0
    page.wait_for_text("later")


def test_every_command_and_program_is_run() -> None:
    """Except for the start of the server and of Spark."""
    left_out = [block.text for block in Page(TUTORIAL).blocks if not block.run]
    assert left_out == ["make run\n", left_out[1], "python letters.py\n"]
    assert left_out[1].startswith("Headwater ")
