"""A shell for the documentation: blocks are pasted into it from top to bottom, on one server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.docs.markdown import Block, Page
from tests.support.server import ServerProcess

DOCUMENTED_PORT = ":4437"
SCRIPT_TIMEOUT_S = 900
OUTPUT_TIMEOUT_S = 240

needs_shell = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl"
)


def wait_until(condition: Callable[[], bool], patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Shell:
    """Blocks of a page, pasted into one shell one after the other."""

    def __init__(
        self,
        blocks: Sequence[Block],
        directory: Path,
        port: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._blocks = blocks
        self._directory = directory
        self._port = f":{port}"
        # The meter that curl draws when nobody watches would be in the way.
        (directory / ".curlrc").write_text("silent\nshow-error\n")
        script = "set -e\n" + "".join(map(self._step, blocks))
        usual = {
            "CURL_HOME": str(directory),
            "NO_PROXY": "*",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "STREAM_URL": f"http://127.0.0.1:{port}",
        }
        self._process = subprocess.Popen(
            ["bash", "-c", script.replace(DOCUMENTED_PORT, self._port)],
            cwd=directory,
            env=os.environ | usual | (environment or {}),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _step(self, block: Block) -> str:
        output = f"block-{block.line}"
        if block.file:
            return f"cat >>{block.file} <<'END-OF-FILE'\n{block.text}END-OF-FILE\n"
        if block.background:
            # A person would look at it before going on.
            seen = f"until [ -e {output}-seen ]; do sleep 0.05; done\n"
            return f"(\n{block.text}) >{output} 2>&1 &\n{seen}"
        if block.repeated:
            again = f"{{\n{block.text}}} >{output}-next 2>&1 || true\nmv {output}-next {output}\n"
            return f"until [ -e {output}-seen ]; do\n{again}sleep 0.5\ndone\n"
        if block.language == "python":
            return f"python - <<'END-OF-PROGRAM' >{output} 2>&1\n{block.text}END-OF-PROGRAM\n"
        return f"exec >{output} 2>&1\n{block.text}"

    def wait(self) -> int:
        """Wait until all blocks are through; those in the background may go on."""
        for block in self._blocks:
            if block.background or block.repeated:
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
        """The output, as soon as it is as expected: some blocks print in their own time."""

        def settled() -> bool:
            return block.missing_from(self.output(block)) is None or self._failed()

        wait_until(settled, OUTPUT_TIMEOUT_S if block.background or block.repeated else 0)
        return self.output(block)

    def _failed(self) -> bool:
        return self._process.poll() not in (None, 0)

    def check(self, block: Block) -> None:
        """Fail unless a block printed what its page says."""
        if block.file:
            return
        output = self.settled_output(block)
        missing = block.missing_from(output)
        assert missing is None, f"{block.text}\nprinted\n\n{output}\n\nwhich lacks {missing}"
        if not block.background:
            assert "curl: (" not in output, output

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
