"""`headwater set`: change individual settings of a stream and keep the others.

The server replaces all settings at once, under a version number. So the current ones are read,
changed, and sent as the next version. If somebody else does the same meanwhile, one of the two is
refused.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.output import Json, report
from headwater.cli.quantities import parse_size
from headwater.cli.records import SettingsRecord
from headwater.cli.stream_options import Description, Durability, UniqueIds, moment_of, seconds_of
from headwater.cli.target import Target, with_target
from headwater.client import Headwater, Stream
from headwater.client.protocol.streams import stream_info

NONE: Final = "none"
_VERSION: Final = "Stream-Config-Version"
# Which response headers of HEAD report settings, and how to request the same again.
_KEPT: Final = (
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Retention-Seconds",
    "Stream-Retention-Bytes",
    "Stream-Durability",
    "Stream-Unique-Ids",
    "Stream-Id-Pointer",
    "Stream-Description",
)


def _limit(option: str, metavar: str, text: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(
        option, metavar=metavar, help=f"{text}; none for no limit."
    )
    return info


@with_target
def set_(
    target: Target,
    stream: remote.StreamPath,
    keep: Annotated[
        str | None, _limit("--keep", "TIME", "Forget what is older than this: 12h, 30d")
    ] = None,
    keep_bytes: Annotated[
        str | None, _limit("--keep-bytes", "SIZE", "Forget the oldest beyond this: 500MB, 10GiB")
    ] = None,
    ttl: Annotated[
        str | None, _limit("--ttl", "TIME", "Delete it after this long without access")
    ] = None,
    expires_at: Annotated[
        str | None, _limit("--expires-at", "TIME", "Delete it at a moment: 2026-01-31T12:00:00Z")
    ] = None,
    durability: Durability = None,
    unique_ids: UniqueIds = None,
    description: Description = None,
    json: Json = False,
) -> None:
    """Change individual settings of a stream and keep the others.

    A setting that keeps less drops the rest at once and for good, so it
    needs permission to delete.

    Examples:

      headwater set metrics --keep 90d
      headwater set metrics --keep none --keep-bytes 10GiB
      headwater set orders --description 'what customers want'
    """
    if ttl not in (None, NONE) and expires_at not in (None, NONE):
        raise usage("use --ttl or --expires-at, not both")
    changes: dict[str, str | None] = {}
    if keep is not None:
        changes["Stream-Retention-Seconds"] = _number(keep, seconds_of)
    if keep_bytes is not None:
        changes["Stream-Retention-Bytes"] = _number(keep_bytes, parse_size)
    if ttl is not None:
        changes |= {"Stream-TTL": _number(ttl, seconds_of), "Stream-Expires-At": None}
    if expires_at is not None:
        moment = None if expires_at == NONE else moment_of(expires_at, None)
        changes |= {"Stream-Expires-At": moment} | ({} if ttl is not None else {"Stream-TTL": None})
    given = {
        "Stream-Durability": durability,
        "Stream-Unique-Ids": unique_ids,
        "Stream-Description": description,
    }
    changes |= {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise usage("there is nothing to change; name a setting, as in --keep 30d")
    with target.connect(stream=stream) as client:
        record = _change(client, remote.open_stream(client, stream), changes)
    report(record, f"{stream} has version {record.version} of its settings", json=json)


def _number(text: str, read: object) -> str | None:
    assert callable(read)
    return None if text == NONE else str(read(text))


def _change(client: Headwater, stream: Stream, changes: dict[str, str | None]) -> SettingsRecord:
    said = client.request("HEAD", stream.url)
    stream_info(said)  # unless it is not a stream at all
    before = said.headers
    wanted: dict[str, str | None] = {name: before.get(name.lower()) for name in _KEPT}
    wanted |= changes
    wanted["Content-Type"] = before.get("content-type")
    version = int(before.get(_VERSION.lower(), "0")) + 1
    headers = {name: value for name, value in wanted.items() if value is not None}
    after = client.request("PUT", stream.url, headers={**headers, _VERSION: str(version)}).headers
    if after.get(_VERSION.lower()) != str(version):
        raise CliError(
            f"somebody else has just changed {stream.path}; look at `headwater info` and try again",
            ExitCode.CONFLICT,
        )

    def number(name: str) -> int | None:
        text = after.get(name)
        return None if text is None else int(text)

    return SettingsRecord(
        name=stream.path,
        version=version,
        ttl_s=number("stream-ttl"),
        expires_at=after.get("stream-expires-at"),
        retention_s=number("stream-retention-seconds"),
        retention_bytes=number("stream-retention-bytes"),
        durability=after.get("stream-durability"),
        unique_ids=after.get("stream-unique-ids"),
        description=after.get("stream-description"),
    )
