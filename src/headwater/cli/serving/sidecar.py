"""What `headwater up` runs alongside the server: the pipelines, and a demo feed."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headwater.cli.serving import demo
from headwater.cli.serving.supervisor import Report, Supervisor
from headwater.cli.shell import say
from headwater.client import AsyncHeadwater, HeadwaterError
from headwater.core import pipelines
from headwater.service.background import Retried, Watch
from headwater.store.sqlite.database import DataDirectoryError, prepare_directory

TOKEN_VARIABLE: Final = "HEADWATER_TOKEN"
_LOG: Final = "spark.log"

QUESTIONS: Final = (
    "SELECT timestamp, value FROM sales ORDER BY timestamp DESC LIMIT 5",
    "SELECT key, name, city, visits FROM customers ORDER BY visits DESC LIMIT 5",
    "SELECT window_start, stream, messages, bytes FROM rollup ORDER BY window_start, stream",
)
"""A query about the demo for each of the pipelines."""


class CannotRun(Exception):
    """The pipelines cannot run; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run alongside the server.

    Attributes:
        lake: where the tables are.
        pipelines: whether there are pipelines.
        demo: whether there is a demo feed.
        token: their credentials for the server.
        iceberg: whether the tables are described as Iceberg too.
        on_error: what `materialize` does about a message that does not fit.
        command: the command that runs the pipelines.
        watches: the state of the feed and the pipelines. Unexpected failures are logged, the task
            is restarted, and the server reports it.
    """

    lake: Path
    pipelines: bool
    demo: bool
    token: str | None = field(default=None, repr=False)
    iceberg: bool = False
    on_error: str = "fail"
    command: tuple[str, ...] = (sys.executable, "-m", "pyspark_headwater.pipelines.together")
    watches: tuple[Watch, Watch] = field(
        default_factory=lambda: (Watch("demo_feed"), Watch("pipelines")), repr=False
    )

    @asynccontextmanager
    async def running(self, url: str, hurry: asyncio.Event) -> AsyncIterator[None]:
        """Run all of it, until the block is left. The server has to run for that long."""
        url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        self._greet()
        feeding, running = (Retried(watch) for watch in self.watches)
        async with AsyncHeadwater(url, token=self.token) as client:
            supervisor = self._supervisor(
                url, lambda why: running.start(lambda: _notify(client, why))
            )
            if self.demo:
                feeding.start(lambda: demo.feed(client, say))
            if supervisor is not None:
                running.start(supervisor.keep_running)
            try:
                yield
            finally:
                await feeding.stop()
                await running.stop()
                if supervisor is not None:
                    await supervisor.stop(hurry)

    def _supervisor(
        self, url: str, tell: Callable[[str | None], None] = lambda why: None
    ) -> Supervisor | None:
        """The process of the pipelines, if they can run here."""
        if not self.pipelines:
            return None
        directory = self.lake.absolute() / pipelines.PROGRESS
        try:
            _require_packages()
            # Never released: it is ours for as long as this process lives.
            prepare_directory(directory)
        except (CannotRun, DataDirectoryError) as error:
            say(f"the pipelines do not run: {error}; the server continues without them")
            tell(f"do not run: {error}")
            return None
        arguments = ["--endpoint", url, "--root", str(self.lake.absolute())]
        arguments += ["--on-error", self.on_error, *(["--iceberg"] if self.iceberg else [])]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        if self.token is not None:
            environment[TOKEN_VARIABLE] = self.token
        bulletin = Bulletin(pipelines.ALWAYS_ON, say)
        log = directory / _LOG
        command = (*self.command, *arguments)
        return Supervisor("the pipelines", command, environment, log, bulletin.take, say, tell)

    def _greet(self) -> None:
        """Print lines to paste. On stdout, because they are what the person wants to see."""
        lines = []
        if self.demo:
            lines += [f"A demo feed writes to {demo.SALES} and {demo.CUSTOMERS}.", ""]
        if self.pipelines:
            *first, last = pipelines.ALWAYS_ON
            names = f"{', '.join(first)} and {last}"
            lines += [
                f"Tables in {self.lake}, kept by {names}. Spark takes a moment to start; then:"
            ]
            lines += ["", *(f"  {self.asking(question)}" for question in self._questions()), ""]
        print("\n".join(lines), flush=True)

    def _questions(self) -> tuple[str, ...]:
        return QUESTIONS if self.demo else ("",)

    def asking(self, question: str) -> str:
        """The command line for a query, ready to paste."""
        words = [_this_command(), "sql"]
        if question:
            words.append(f'"{question}"')
        if self.lake != Path("lake"):
            words += ["--root", shlex.quote(str(self.lake))]
        return " ".join(words)


async def _notify(client: AsyncHeadwater, why: str | None) -> None:
    """Report to the server, for its console, why the pipelines' process is not running.

    A running pipeline reports by itself. This is for when none does.
    """
    nothing = {"batch": 0, "rows": 0, "rows_per_s": 0.0, "batch_ms": 0}
    state = {"state": "failing" if why else "running", "error": why and why[:2_000]}
    report = {"name": "headwater up", "kind": "process", **nothing, **state}
    with suppress(HeadwaterError):
        await client.request("POST", "/v1/pipelines", json=report)


def _this_command() -> str:
    """How to call this very command in the current directory."""
    script = Path(sys.argv[0]).absolute()
    found = shutil.which("headwater")
    if found is not None and script.exists() and Path(found).samefile(script):
        return "headwater"
    if script.name != "headwater" or not script.is_relative_to(Path.cwd()):
        return f"{shlex.quote(sys.executable)} -m headwater"
    return shlex.quote(str(script.relative_to(Path.cwd())))


def _require_packages() -> None:
    for name in ("pyspark", "deltalake"):
        if find_spec(name) is None:
            raise CannotRun(f"they need Spark ({name} is missing): pip install 'headwater[spark]'")


QUIET_S: Final = 10.0


@dataclass(slots=True)
class _Standing:
    """The state of one pipeline."""

    rows: int = 0
    behind: int = 0
    behind_s: float = 0.0

    def line(self, name: str) -> str:
        late = f" ({self.behind_s:.0f} s)" if self.behind_s >= 1 else ""
        behind = f", {self.behind:,} behind{late}" if self.behind else ""
        return f"{name} +{self.rows:,} rows{behind}"


class Bulletin:
    """Collects reports and prints what is new, but not too often."""

    def __init__(
        self, names: Sequence[str], say: Callable[[str], None], quiet_s: float = QUIET_S
    ) -> None:
        self._say = say
        self._quiet_s = quiet_s
        self._silent = set(names)
        self._news: dict[str, _Standing] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, report: Report) -> None:
        match report:
            case {"is": "running"}:
                self._say("Spark has started; all JSON streams are being taken in")
            case {"is": "progress", "pipeline": str(name), "rows": int(rows)}:
                standing = self._news.setdefault(name, _Standing())
                standing.rows += rows
                standing.behind = report.get("lag_messages") or 0
                standing.behind_s = report.get("lag_s") or 0.0
                self._first_of(name)
                if self._timer is None:
                    self._speak()
            case {"is": "paused" | "resumed" as what, "pipeline": str(name)}:
                self._say(f"{name} is {what}")
            case {"is": "left out", "stream": str(stream), "why": str(why)}:
                self._say(f"the table of {stream} ends here: {why}")

    def _first_of(self, name: str) -> None:
        if name in self._silent:
            self._silent.remove(name)
            if not self._silent:
                self._say("all tables are there: try the commands above")

    def _speak(self) -> None:
        """Print what is new, then nothing for a while."""
        self._timer = None
        if self._news:
            lines = [self._news[name].line(name) for name in sorted(self._news)]
            self._say("; ".join(lines))
            self._news.clear()
            self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._speak)
