"""`headwater cluster`: nodes that share a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from headwater.cli.exits import CliError, ExitCode, one_line
from headwater.cli.output import Json, console, new_table, write_json
from headwater.cli.records import NodeRecord
from headwater.cli.shell import say
from headwater.cli.target import Target, with_target
from headwater.client import Headwater, StreamNotFound
from headwater.client.protocol.streams import decoded
from headwater.core.cluster import SHARDS_DEFAULT, SHARDS_MAX, parse_labels
from headwater.core.errors import InvalidPath
from headwater.core.paths import check_path

app = typer.Typer(no_args_is_help=True)

_WHERE: Final = {
    "metavar": "ADDRESS",
    "help": "The database, postgresql://HOST/DATABASE; also $HEADWATER_ENGINE.",
    "envvar": "HEADWATER_ENGINE",
    "show_envvar": False,
}
Engine = Annotated[str, typer.Option("--engine", **_WHERE)]
Prefix = Annotated[
    str, typer.Argument(metavar="PREFIX", help="Prefix of the paths, in whole segments.")
]


@app.callback()
def _cluster() -> None:
    """Manage nodes that share a PostgreSQL database.

    Examples:

      headwater cluster init postgresql://db.example.com/headwater --shards 64
      headwater cluster status
      headwater cluster drain 3
      headwater cluster bind eu region=eu
    """


@app.command()
def init(
    engine: Annotated[
        str,
        typer.Argument(**_WHERE),
    ],
    shards: Annotated[
        int, typer.Option("--shards", min=1, max=SHARDS_MAX, help="Number of shards.")
    ] = SHARDS_DEFAULT,
) -> None:
    """Create the tables of a database, with a number of shards.

    Nodes share the shards among themselves, so choose several shards for
    each node you may ever run. A server does this by itself in a new
    database, with 32 shards. You can change the number while no node runs.

    Examples:

      headwater cluster init postgresql://db.example.com/headwater --shards 64
    """
    with _explained():
        from headwater.store.postgresql.database import Database

        before = Database(engine).divide(shards)
    say(f"the database has {shards} shards" + (f", before {before}" if before != shards else ""))


@app.command()
def bind(
    prefix: Prefix,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="Such as region=eu.")],
    engine: Engine,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, max=SHARDS_MAX, help="Number of shards, at least."),
    ] = None,
) -> None:
    """Assign new streams below a prefix to nodes with a label.

    From then on, part of the shards (a quarter by default) is reserved for
    nodes started with that `--label`. While no such node is alive, the
    others serve these streams too. Existing streams stay where they are.

    Examples:

      headwater cluster bind eu region=eu --engine postgresql://db/headwater
    """
    try:
        path = check_path(prefix.rstrip("/"))
        if parse_labels(label) != {label}:
            raise ValueError("name one label, such as region=eu")
    except (InvalidPath, ValueError) as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    with _explained():
        from headwater.store.postgresql.bindings import bind as bind_prefix

        found = bind_prefix(engine, path, label, shards)
    say(f"new streams below {path}/ are for nodes with {label}, which have {found} shards")


@app.command()
def unbind(prefix: Prefix, engine: Engine) -> None:
    """Let new streams below a prefix go to any node again.

    Examples:

      headwater cluster unbind eu --engine postgresql://db/headwater
    """
    with _explained():
        from headwater.store.postgresql.bindings import unbind as unbind_prefix

        found = unbind_prefix(engine, prefix.rstrip("/"))
    if not found:
        raise CliError(f"{prefix} is not bound to a label", ExitCode.NOT_FOUND)
    say(f"new streams below {prefix.rstrip('/')}/ go to any node")


@contextmanager
def _explained() -> Iterator[None]:
    """Explain database errors in words."""
    from headwater.store.engine import CannotOpen

    try:
        yield
    except ModuleNotFoundError:
        advice = "pip install 'headwater[postgres]'"
        raise CliError(f"the PostgreSQL engine needs psycopg: {advice}") from None
    except CannotOpen as error:
        raise CliError(str(error)) from None


@app.command()
@with_target
def status(target: Target, json: Json = False) -> None:
    """Show the nodes of a cluster, and how many shards each of them owns.

    Examples:

      headwater cluster status
      headwater cluster status --json | jq -r 'select(.draining) | .id'
    """
    with target.connect() as client:
        seen = _seen(client, target)
    records = [NodeRecord(**node) for node in seen["nodes"]]
    if json:
        for record in records:
            write_json(record)
        return
    table = new_table("#NODE", "ADDRESS", "#SHARDS", "#LEASE", "STATE", "LABELS", "NAME", folding=2)
    for node in records:
        table.add_row(
            str(node.id),
            one_line(node.address or "-"),
            str(node.shards),
            f"{node.lease_ms} ms",
            "draining" if node.draining else "ready",
            one_line(", ".join(node.labels) or "-"),
            one_line(node.name),
        )
    console().print(table)
    for one in seen["bindings"]:
        count = sum(shard["label"] == one["label"] for shard in seen["shards"])
        say(f"{one['prefix']}/ is bound to {one['label']}, which has {count} shards")
    free = sum(shard["owner"] is None for shard in seen["shards"])
    if free:
        say(f"{free} of {len(seen['shards'])} shards have no owner at this moment")


@app.command()
@with_target
def drain(
    target: Target,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its number or address, as `status` shows it.")
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Give the node its share again.")] = False,
) -> None:
    """Make a node hand over everything it owns.

    Clients do not notice: requests that arrive in the meantime wait a
    moment for the new owner. The node keeps answering. Stop it when
    `status` shows that it owns nothing.

    Examples:

      headwater cluster drain 3
      headwater cluster drain http://node3.example.com:4437 --undo
    """
    with target.connect() as client:
        nodes = _seen(client, target)["nodes"]
        found = [each["id"] for each in nodes if node in (str(each["id"]), each["address"])]
        if not found:
            raise CliError(
                f"there is no node {node}; see `headwater cluster status`", ExitCode.NOT_FOUND
            )
        client.request("POST", "/v1/cluster/drain", json={"node": found[0], "draining": not undo})
    say(f"node {found[0]} {'has its share again' if undo else 'hands over what it owns'}")


def _seen(client: Headwater, target: Target) -> dict[str, Any]:
    try:
        answer = client.request("GET", "/v1/cluster")
    except StreamNotFound:
        raise CliError(f"{target.url} is not part of a cluster") from None
    seen = decoded(answer, dict[str, Any])
    if "nodes" not in seen:
        raise CliError(f"{target.url} does not answer like a stream server; check the address")
    return seen
