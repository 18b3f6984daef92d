"""The guide to documents: its editor in node writes, and its commands read what was written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.docs.markdown import DOCS, ROOT, Block, Page
from tests.docs.pasting import DOCUMENTED_PORT, Shell, needs_shell, wait_until
from tests.support import node_packages
from tests.support.server import ServerProcess

GUIDE = Page(DOCS / "howto" / "documents.md")
HARNESS = ROOT / "tests" / "conformance"
PATIENCE_S = 60


def executes(page: str, block: Block) -> bool:
    return page == "documents" and (block.language == "js" or block.text.startswith("curl"))


@needs_shell
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_guide(tmp_path: Path) -> None:
    packages = node_packages.install(HARNESS, needed_by="the editor of the guide")
    (tmp_path / "node_modules").symlink_to(packages)
    editor, look = [block for block in GUIDE.blocks if executes("documents", block)]
    with ServerProcess("--memory", "--documents") as server:
        program = editor.text.replace(DOCUMENTED_PORT, f":{server.port}")
        (tmp_path / "editor.mjs").write_text(program)
        text = f"{server.url}/v1/yjs/notes/docs/plan?state=text&name=content"
        node = subprocess.Popen(["node", "editor.mjs"], cwd=tmp_path, stdout=subprocess.PIPE)
        try:
            assert wait_until(lambda: httpx.get(text).text == "Hello", PATIENCE_S)
        finally:
            node.kill()
            said, _ = node.communicate()
        assert b"everything is stored" in said
        shell = Shell([look], tmp_path, server.port)
        try:
            assert shell.wait() == 0
            assert shell.output(look).startswith("Hello")
            assert '"Hello"' in shell.output(look)
        finally:
            shell.end()
