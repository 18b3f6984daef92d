"""`headwater whoami`: who the caller is to the server, and what they may do."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.output import Json, instant, write_facts, write_json
from headwater.cli.records import CallerRecord
from headwater.cli.target import Target, with_target
from headwater.client.protocol.streams import decoded


class _Said(msgspec.Struct):
    access: bool
    name: str | None
    expires_at_ms: int | None
    administers: bool
    grants: Any
    stream: dict[str, Any] | None = None


@with_target
def whoami(
    target: Target,
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="[STREAM]",
            help="Also show what you may do with this stream.",
            autocompletion=remote.complete_stream,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show who you are to the server, and what you may do.

    Examples:

      headwater whoami
      headwater whoami orders --token "$READER"
    """
    with target.connect() as client:
        params = {} if stream is None else {"stream": stream}
        said = decoded(client.request("GET", "/v1/whoami", params=params), _Said)
    record = CallerRecord(
        access=said.access,
        name=said.name,
        expires_at=instant(said.expires_at_ms),
        administers=said.administers,
        grants=_grants(said.grants),
        stream=said.stream,
    )
    if json:
        write_json(record)
        return
    facts: dict[str, object] = {
        "server": target.url,
        "access control": "on" if record.access else "off: everybody may do everything",
        "name": record.name,
        "expires": record.expires_at,
        "administrator": record.administers,
    }
    facts |= {name: ", ".join(patterns) or None for name, patterns in record.grants.items()}
    if record.stream is not None:
        allowed = [name for name, is_allowed in record.stream.items() if is_allowed is True]
        facts[f"on {stream}"] = ", ".join(allowed) or "nothing"
    write_facts(facts)


def _grants(said: Any) -> dict[str, list[str]]:
    if not isinstance(said, dict):
        return {}
    return {name: patterns for name, patterns in said.items() if isinstance(patterns, list)}
