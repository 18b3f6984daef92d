"""All how-tos in one order, on one server: what one page leaves behind must not break another.

On a page with blocks that are marked to be run, those are; on any other, all commands and programs
are. Pages that need more than a server are run elsewhere: Spark in tests/spark, PostgreSQL in
tests/postgres, access in tests/access, frameworks in test_recipes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Headwater
from tests.client import snippets
from tests.docs.markdown import DOCS, Block, Page
from tests.docs.pasting import Shell, needs_shell
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

PAGES = (
    *("cli", "client", "groups", "live", "subscriptions", "notebook"),
    *("history", "responses"),
)
MODEL = "https://api.openai.com/v1"
PROGRAMS_OF_TESTS = "def test_"


def blocks_of(name: str) -> list[Block]:
    blocks = Page(DOCS / "howto" / f"{name}.md").blocks
    marked = [block for block in blocks if block.run]
    return marked or [
        block
        for block in blocks
        if block.language in ("sh", "python") and not block.text.startswith(PROGRAMS_OF_TESTS)
    ]


class Reader:
    """Someone who goes through the pages, one after the other."""

    def __init__(self, server: ServerProcess, upstream: Upstream, directory: Path) -> None:
        self._server = server
        self._model = f"http://127.0.0.1:{upstream.port}/v1"
        self._directory = directory
        self._namespace: dict[str, Any] = {}

    def follow(self, name: str) -> None:
        directory = self._directory / name
        directory.mkdir()
        # A program for each page, with what pages take for granted.
        self._namespace = {"api_key": "sk-1", "messages": []}
        try:
            for language, blocks in itertools.groupby(blocks_of(name), lambda one: one.language):
                if language == "python":
                    self._program(name, [block.text for block in blocks])
                else:
                    self._paste(list(blocks), directory)
        finally:
            self._end_program()

    def _end_program(self) -> None:
        """The end of a process would close what a page leaves open."""
        for value in self._namespace.values():
            if isinstance(value, Headwater | sqlite3.Connection):
                value.close()

    def _program(self, name: str, texts: list[str]) -> None:
        program = "\n".join(texts).replace(snippets.SERVER, self._server.url)
        program = program.replace(MODEL, self._model)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(program, f"{name}.md", "exec", dont_inherit=True), self._namespace)

    def _paste(self, blocks: list[Block], directory: Path) -> None:
        configuration = {"HEADWATER_CONFIG": str(directory / "config.toml")}
        shell = Shell(blocks, directory, self._server.port, configuration)
        try:
            ended = shell.wait()
            for block in blocks:
                shell.check(block)
                assert "secret-token" not in shell.output(block)
            assert ended == 0
        finally:
            shell.end()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    data = str(tmp_path / "data")
    with (
        Upstream() as upstream,
        ServerProcess("--data", data, "--proxy-allow", "http://127.0.0.1:*") as server,
    ):
        upstream.on("/v1/chat/completions", lambda peer: peer.answer(b"data: hello\n\n"))
        yield Reader(server, upstream, tmp_path)
        assert "Traceback" not in server.stderr, server.stderr


@needs_shell
@pytest.mark.slow
def test_all_in_one_order_on_one_server(reader: Reader) -> None:
    for name in PAGES:
        try:
            reader.follow(name)
        except Exception as error:
            pytest.fail(f"docs/howto/{name}.md: {error!r}")


def test_no_page_is_left_out() -> None:
    elsewhere = {"access", "cluster", "console", "django", "fastapi", "postgres", "spark"}
    without_programs = {"browser", "documents", "production"}
    pages = {path.stem for path in (DOCS / "howto").glob("*.md")}
    assert pages == {*PAGES} | elsewhere | without_programs
