"""`headwater live`: wait until the result of a query may have changed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, usage
from headwater.cli.output import (
    Json,
    report,
    write_facts,
    write_json,
    write_line,
)
from headwater.cli.quantities import parse_seconds
from headwater.cli.records import LiveRecord, ProfileRecord, TemplateRecord, WaitRecord
from headwater.cli.target import Target, with_target
from headwater.client import Template, keyset
from headwater.client.protocol.values import UNREADABLE

app = typer.Typer(no_args_is_help=True)

Entity = Annotated[
    str, typer.Argument(metavar="TABLE", help="Table, which is the `type` of its change records.")
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="TIME", help="Keep following for this long after the last wait."),
]


@app.callback()
def _live() -> None:
    """Wait until the result of a query may have changed.

    The stream holds State Protocol messages; `live profile --touch` makes
    the server watch them.

    Examples:

      headwater live profile todos --kind state-protocol --touch
      headwater live wait todos public.todos --where tenant=acme
      headwater live status todos
    """


@app.command()
@with_target
def profile(
    target: Target,
    stream: remote.StreamPath,
    kind: Annotated[
        Literal["generic", "state-protocol"] | None,
        typer.Option("--kind", help="New profile of the stream."),
    ] = None,
    touch: Annotated[
        bool | None,
        typer.Option("--touch/--no-touch", help="Whether queries can wait on the stream."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what a stream is used for, or change it.

    Examples:

      headwater live profile todos
      headwater live profile todos --kind state-protocol --touch
    """
    if touch is not None and kind != "state-protocol":
        raise usage("--touch needs --kind state-protocol")
    with target.connect(stream=stream) as client:
        live = remote.open_stream(client, stream).live()
        if kind is None:
            now = live.profile()
        else:
            wire: dict[str, Any] = {"kind": kind}
            if touch is not None:
                wire["touch"] = {"enabled": touch}
            now = live.set_profile(wire)
    encoded = msgspec.json.encode(now)
    if json:
        write_json(ProfileRecord(name=stream, profile=msgspec.Raw(encoded)))
    else:
        write_line(msgspec.json.format(encoded, indent=2).decode())


@app.command()
@with_target
def status(target: Target, stream: remote.StreamPath, json: Json = False) -> None:
    """Show the cursor of a live stream, and how its live queries are doing.

    Examples:

      headwater live status todos
      headwater live status todos --json | jq -r .cursor
    """
    with target.connect(stream=stream) as client:
        meta = remote.open_stream(client, stream).live().meta()
    record = LiveRecord(
        name=stream,
        cursor=meta.cursor,
        settled=meta.settled,
        mode=meta.touch_mode,
        templates=meta.active_templates,
        waiters=meta.active_waiters,
        lag_messages=meta.lag_source_offsets,
        memory_bytes=meta.memory_bytes,
    )
    if json:
        write_json(record)
        return
    facts = {name.replace("_", " "): getattr(record, name) for name in record.__struct_fields__}
    write_facts(facts)


@app.command()
@with_target
def activate(
    target: Target,
    stream: remote.StreamPath,
    entity: Entity,
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD...",
            help="Field that queries compare: NAME, or NAME:ENCODING (default: string).",
        ),
    ],
    ttl: Ttl = None,
    json: Json = False,
) -> None:
    """Make the server follow a query shape row by row.

    Waits do this by themselves. Doing it in advance saves the first wait
    from being woken by any change to the table. Exits with 1 if the server
    refuses.

    Examples:

      headwater live activate todos public.todos tenant status
      headwater live activate todos public.todos id:int64 --ttl 1h
    """
    pairs = [field.partition(":") for field in fields]
    encodings: Any = {name: encoding or "string" for name, _, encoding in pairs}
    template = Template(entity, encodings)
    with target.connect(stream=stream) as client:
        found = remote.open_stream(client, stream).live()
        done = found.activate([template], ttl_s=None if ttl is None else parse_seconds(ttl))
    refused = done.denied[0].reason if done.denied else None
    record = TemplateRecord(
        id=template.id,
        entity=entity,
        fields=[*encodings],
        active=refused is None,
        reason=refused,
    )
    report(record, f"{stream} follows {template.id}", json=json)
    if refused is not None:
        raise CliError(f"the server does not follow this shape: {refused}")


@app.command()
@with_target
def wait(
    target: Target,
    stream: remote.StreamPath,
    entity: Entity,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            help="A field that the query compares; VALUE is JSON or text. Repeatable.",
        ),
    ] = None,
    cursor: Annotated[
        str,
        typer.Option(
            "--cursor", help="Cursor to wait from, as `status` or the previous wait printed it."
        ),
    ] = "now",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Give up after this long.")
    ] = "30s",
    ttl: Ttl = None,
    json: Json = False,
) -> None:
    """Wait until the result of a query may have changed, then exit.

    Exits with 0 if something was touched, or if the server cannot be sure
    (run the query again), and with 1 if nothing was touched within
    --timeout.

    Examples:

      headwater live wait todos public.todos
      headwater live wait todos public.todos --where tenant=acme --where done=false
      while headwater live wait todos public.todos --timeout 2m; do ./refresh.sh; done
    """
    seconds = parse_seconds(timeout)
    if not 0 <= seconds <= 120:
        raise usage(f"{timeout!r} is too long; the server waits for two minutes at most")
    asked = keyset(entity, dict(_condition(one) for one in where or []))
    templates = [] if asked.template is None else [asked.template]
    with target.connect(stream=stream) as client:
        live = remote.open_stream(client, stream).live()
        result = live.wait(
            asked.keys,
            cursor=cursor,
            timeout_s=seconds,
            coarse=not templates,
            templates_used=[template.id for template in templates],
            declare=templates,
            ttl_s=None if ttl is None else parse_seconds(ttl),
        )
    record = WaitRecord(touched=result.touched, stale=result.stale, cursor=result.cursor)
    if json:
        write_json(record)
    else:
        write_line(record.cursor)
    if not result.touched and not result.stale:
        raise CliError(f"nothing was touched within {timeout}")


def _condition(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise usage(f"{text!r} is not a condition; write FIELD=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except UNREADABLE:
        return name, value
