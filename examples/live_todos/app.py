"""Run it: `python -m examples.live_todos`. It starts a server unless it is given one."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if __package__ in (None, ""):
    # As a script: `python examples/live_todos/app.py`.
    sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.live_todos.database import ENTITY, Database, Row
from examples.live_todos.relay import Relay
from examples.live_todos.web import TENANTS, Application, Handler
from examples.local import free_port, stream_server, web_server
from headwater.client import AsyncHeadwater, AsyncLiveStream, RetryPolicy

STREAM: Final = "app.wal"
THINGS: Final = ("tea", "bread", "stamps", "a lamp", "paint", "seeds", "string", "a map")
_ROWS_SHOWN: Final = 12
# A server that has just been started may take its time on a busy machine.
START_S: Final = 60.0


class App:
    """The application: a database, its relay, and queries that stay fresh."""

    def __init__(self, client: AsyncHeadwater, database: Database) -> None:
        self.database = database
        self.stream = client.stream(STREAM)
        self.live: AsyncLiveStream = self.stream.live()
        self.relay = Relay(client, STREAM, database)

    async def prepare(self) -> None:
        """Every program of the application may do this at its start."""
        await self.stream.ensure(content_type="application/json")
        await self.live.set_profile({"kind": "state-protocol", "touch": {"enabled": True}})

    # --- Queries ---------------------------------------------------------------------------------

    async def follow_open(self, tenant: str) -> AsyncIterator[list[Row]]:
        """`SELECT id, title … WHERE tenant = ? AND status = 'open'`, whenever it changes."""
        async for rows in self.live.query(
            lambda: asyncio.to_thread(self.database.todos, tenant, "open"),
            entity=ENTITY,
            where={"tenant": tenant, "status": "open"},
            project=["title"],
        ):
            yield rows

    async def follow_done(self, tenant: str) -> AsyncIterator[int]:
        """`SELECT count(*) … WHERE tenant = ? AND status = 'done'`, whenever it changes."""
        async for count in self.live.query(
            lambda: asyncio.to_thread(self.database.count, tenant, "done"),
            entity=ENTITY,
            where={"tenant": tenant, "status": "done"},
            membership_only=True,
        ):
            yield count

    # --- Changes ---------------------------------------------------------------------------------

    async def change_something(self, dice: random.Random) -> None:
        """The same without holding up the event loop, and the relay is told."""
        await asyncio.to_thread(self.change, dice)
        self.relay.ring()

    def change(self, dice: random.Random) -> None:
        """What users do all day."""
        everything = self.database.everything()
        with self.database.transaction() as transaction:
            if len(everything) < 5 or (len(everything) < 20 and dice.random() < 0.4):
                transaction.add(dice.choice(TENANTS), f"Buy {dice.choice(THINGS)}")
                return
            row = dice.choice(everything)
            match dice.randrange(4):
                case 0:
                    transaction.update(row["id"], title=f"Find {dice.choice(THINGS)}")
                case 1:
                    transaction.remove(row["id"])
                case _:
                    other = "open" if row["status"] == "done" else "done"
                    transaction.update(row["id"], status=other)


class Screen:
    """What the terminal shows: one tenant's queries, and how often they ran."""

    def __init__(self, tenant: str, page_url: str) -> None:
        self._tenant = tenant
        self._page_url = page_url
        self._rows: list[Row] = []
        self._done = 0
        self._runs = {"open": 0, "done": 0}
        self._changes = 0

    def show_open(self, rows: list[Row]) -> None:
        self._rows = rows
        self._runs["open"] += 1

    def show_done(self, count: int) -> None:
        self._done = count
        self._runs["done"] += 1

    def show_change(self) -> None:
        self._changes += 1

    def __rich__(self) -> Group:
        table = Table(box=None, padding=(0, 2), header_style="dim")
        table.add_column("id", justify="right", style="cyan")
        table.add_column("title")
        for row in self._rows[:_ROWS_SHOWN]:
            table.add_row(str(row["id"]), row["title"])
        rest = len(self._rows) - _ROWS_SHOWN
        if rest > 0:
            table.add_row("", Text(f"and {rest} more", style="dim"))
        counts = Text.assemble(
            (str(self._done), "bold green"),
            " done   ",
            (str(self._changes), "bold"),
            " changes made here   ",
            (str(self._runs["open"]), "bold"),
            " runs of the list   ",
            (str(self._runs["done"]), "bold"),
            " of the count",
        )
        title = f"Open todos of {self._tenant}"
        return Group(
            Panel(table, title=title, title_align="left", border_style="blue"),
            counts,
            Text(f"In a browser: {self._page_url}", style="dim"),
        )


async def show(app: App, screen: Screen, tenant: str, traffic_s: float, seconds: float) -> None:
    """Keep the screen fresh, and make changes if there are to be any."""

    async def follow_open() -> None:
        async for rows in app.follow_open(tenant):
            screen.show_open(rows)

    async def follow_done() -> None:
        async for count in app.follow_done(tenant):
            screen.show_done(count)

    async def make_changes() -> None:
        dice = random.Random()
        while traffic_s:
            await app.change_something(dice)
            screen.show_change()
            await asyncio.sleep(dice.random() * 2 * traffic_s)

    with Live(screen, console=Console(), refresh_per_second=10), suppress(TimeoutError):
        async with asyncio.timeout(seconds or None), asyncio.TaskGroup() as group:
            for work in (app.relay.run(), follow_open(), follow_done(), make_changes()):
                group.create_task(work)


async def run(arguments: argparse.Namespace, server: str) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncHeadwater(server, retry=RetryPolicy(unreachable_after_s=START_S)) as client:
        app = App(client, Database(arguments.database))
        await app.prepare()

        def on_commit() -> None:
            loop.call_soon_threadsafe(app.relay.ring)

        application = Application(app.database, server, STREAM, on_commit)
        with web_server(partial(Handler, application), arguments.port) as page_url:
            screen = Screen(arguments.tenant, page_url)
            await show(app, screen, arguments.tenant, arguments.traffic, arguments.seconds)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.live_todos", description=__doc__)
    parser.add_argument("--server", help="the address of a running server; else one is started")
    parser.add_argument("--database", type=Path, help="the SQLite file; else a new one each time")
    parser.add_argument("--port", type=int, default=8000, help="where to serve the page (8000)")
    parser.add_argument("--tenant", choices=TENANTS, default=TENANTS[0])
    parser.add_argument(
        "--traffic", type=float, default=1.0, help="seconds between changes; 0: none"
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so long; 0: never")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="live-todos-") as name, suppress(KeyboardInterrupt):
        chosen.database = chosen.database or Path(name) / "todos.db"
        if chosen.server:
            asyncio.run(run(chosen, chosen.server))
            return
        # The stream server has to know the page's origin before there is a page.
        chosen.port = chosen.port or free_port()
        # The database knows what it has sent, so the stream is kept next to it.
        data = str(chosen.database.with_suffix(".streams"))
        with stream_server("serve", "--data", data, page_port=chosen.port) as server:
            asyncio.run(run(chosen, server))


if __name__ == "__main__":
    main()
