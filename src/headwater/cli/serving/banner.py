"""What a person sees when the server is up: lines to paste, and who may do what."""

from __future__ import annotations

import shlex
from contextlib import suppress
from textwrap import shorten
from typing import Final

import msgspec

from headwater import __version__
from headwater.cli.serving.access import access_is_on, keys_place
from headwater.core.access.grants import grants_from
from headwater.core.access.keys import KeyBook, KeyRecord
from headwater.http.console.resource import CONSOLE
from headwater.service.clock import wall_clock_ms
from headwater.settings import Settings
from headwater.store.key_file import KeyFileError

_KEYS_SHOWN: Final = 5
_RIGHTS_CHARS: Final = 60


def greet(settings: Settings, port: int) -> None:
    """On stdout, because it is what the person wants to see."""
    root = address(settings, port)
    base = f"{root}/v1/stream"
    key = ' -H "Authorization: Bearer $HEADWATER_TOKEN"' if access_is_on(settings) else ""
    print(
        f"Headwater {__version__} listens on {root} (streams in {settings.engine_place})\n\n"
        f"  curl -X PUT  {base}/hello -H 'Content-Type: application/json'{key}\n"
        f"  curl -X POST {base}/hello -H 'Content-Type: application/json'{key} -d '{{\"n\": 1}}'\n"
        f"  curl -N     '{base}/hello?offset=-1&live=sse'{key}\n\n"
        f"  {_access(settings)}\n"
        + (f"\n  in a browser: {root}{CONSOLE}\n" if settings.console else ""),
        flush=True,
    )


def address(settings: Settings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{port}"


def _access(settings: Settings) -> str:
    """Whether access control is on, who may do what, and how to get access."""
    place = keys_place(settings)
    if not access_is_on(settings):
        auto = "" if settings.access == "auto" else " with --access auto"
        way = (
            f"To change that: {_create(settings)}, then start again{auto}."
            if place is not None
            else "To change that, serve a data directory and make a key for it."
        )
        return (
            "Access control is off: anyone who can reach this address may read, write and delete.\n"
            f"  {way}"
        )
    if settings.jwt_secret_file or settings.jwt_jwks:
        return "Access control is on: every request needs a key or a token."
    book = None
    with suppress(KeyFileError):
        book = place.load() if place is not None else None
    now_ms = wall_clock_ms()
    valid = [key for key in (book or KeyBook()).keys if (key.expires_at_ms or now_ms + 1) > now_ms]
    keys = f"{len(valid)} key{'' if len(valid) == 1 else 's'}"
    if any(grants_from(key.grants).administer_server for key in valid):
        more = f"  Another one: {_create(settings)}."
    else:
        more = f"  But none of them may do everything, the console included: {_create(settings)}."
    first = f"Access control is on: {keys}, sent as `Authorization: Bearer KEY`."
    return "\n".join([first, *_who(valid), more])


def _who(keys: list[KeyRecord]) -> list[str]:
    """What each key may do, as far as there is room."""
    lines = []
    for key in keys[:_KEYS_SHOWN]:
        grants: dict[str, list[str]] = msgspec.to_builtins(key.grants)
        rights = ", ".join(f"{right} {' '.join(of)}" for right, of in grants.items())
        may = shorten(rights, _RIGHTS_CHARS, placeholder=" …")
        lines.append(f"    {key.name or key.id}: {may}")
    if len(keys) > _KEYS_SHOWN:
        lines.append(f"    and {len(keys) - _KEYS_SHOWN} more, see `headwater keys ls`")
    return lines


def _create(settings: Settings) -> str:
    where = ""
    if settings.keys_file:
        where = f" --keys-file {shlex.quote(settings.keys_file)}"
    elif settings.engine_kind == "postgresql":
        where = " --engine ADDRESS"
    elif str(settings.data) != "data":
        where = f" --data {shlex.quote(str(settings.data))}"
    return f"`headwater keys create --name admin --admin '**'{where}`"
