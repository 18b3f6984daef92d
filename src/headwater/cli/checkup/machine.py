"""The machine: the address, who may connect, open files, memory, the clock."""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headwater.cli.checkup.findings import Finding, hint, ok, problem
from headwater.cli.output import size
from headwater.cli.serving.access import (
    CannotServe,
    access_is_on,
    check_address,
    keys_place,
    open_certificate,
)
from headwater.cli.serving.reloading import Reloader
from headwater.http.wire.descriptors import FILES_BESIDES
from headwater.settings import Settings
from headwater.store.key_file import KeyFileError

_BUILT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def check(settings: Settings, *, in_use: bool) -> Iterator[Finding]:
    """`in_use`: a server already uses the data directory, so its port is expected to be taken."""
    yield from _rule(settings)
    yield from _access(settings)
    yield _port(settings, in_use=in_use)
    yield _files(settings)
    yield from _memory(settings)
    yield from _strangers(settings)
    yield from _clock()


def _rule(settings: Settings) -> Iterator[Finding]:
    try:
        check_address(settings)
    except CannotServe as error:
        yield problem("address", str(error), "a server would refuse to start")


def _access(settings: Settings) -> Iterator[Finding]:
    """The files that a server reads before it admits anyone."""
    try:
        open_certificate(settings, Reloader())
    except CannotServe as error:
        yield problem("tls", str(error), "a server would refuse to start")
    try:
        place = keys_place(settings)
        if place is None or not access_is_on(settings):
            return
        book = place.load()
    except KeyFileError as error:
        yield problem("access", str(error), "restore the file, or make new keys in another one")
        return
    tokens = settings.jwt_secret_file or settings.jwt_jwks
    if not tokens and (book is None or not book.keys):
        advice = "make one: headwater keys create"
        yield hint("access", f"nobody can get in: {place.name} has no keys", advice)
    else:
        yield ok("access", "only with a key or token")


def _port(settings: Settings, *, in_use: bool) -> Finding:
    address = f"{settings.host}:{settings.port}"
    try:
        kind, _, _, _, place = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        advice = "use --host with an address of this machine"
        return problem("address", f"{settings.host} cannot be used here: {error.strerror}", advice)
    with socket.socket(kind, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
            probe.listen()
        except OSError as error:
            return _taken(address, error, in_use=in_use)
    return ok("address", f"{address} is free")


def _taken(address: str, error: OSError, *, in_use: bool) -> Finding:
    if error.errno == errno.EADDRINUSE and in_use:
        return ok("address", f"{address} is taken, it seems by the server of this directory")
    advice = {
        errno.EADDRINUSE: "stop the process that listens there, or choose another --port",
        errno.EACCES: "choose a --port from 1024 on, or allow this user to use it",
        errno.EADDRNOTAVAIL: "use --host with an address of this machine",
    }.get(error.errno or 0, "choose another --host or --port")
    return problem("address", f"cannot listen on {address}: {error.strerror}", advice)


def _files(settings: Settings) -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.connections_max + FILES_BESIDES
    if most != resource.RLIM_INFINITY and most < needed:
        return hint(
            "files",
            f"{most:,} files may be open, and {settings.connections_max:,} connections need more",
            "raise the limit (LimitNOFILE= of systemd, ulimit -Hn), or lower connections_max",
        )
    return ok("files", "enough may be open")


_HELD: Final = {
    "hot_bytes_max": "recent data",
    "queue_bytes_max": "writes that wait",
    "bodies_bytes_max": "bodies that arrive",
    "buffers_bytes_max": "unread answers",
}
_CONTAINER_MEMORY: Final = Path("/sys/fs/cgroup/memory.max")


def _memory(settings: Settings) -> Iterator[Finding]:
    there = _memory_bytes()
    held = {name: getattr(settings, name) for name in _HELD}
    wanted = settings.limits().memory_bytes_max
    if wanted > there * 3 // 4:
        largest = max(held, key=held.__getitem__)
        yield hint(
            "memory",
            f"{', '.join(_HELD.values())} and all else may take {size(wanted)} of {size(there)}",
            f"lower {largest} ({size(held[largest])}), or one of {', '.join(held)}",
        )
    else:
        yield ok("memory", f"limits add up to {size(wanted)} of {size(there)}")


def _memory_bytes() -> int:
    """The memory of this machine, or of its container."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTAINER_MEMORY.read_text().strip()
    except OSError:
        return there
    return min(there, int(limit)) if limit.isdigit() else there


def _strangers(settings: Settings) -> Iterator[Finding]:
    """What limits who may connect."""
    if access_is_on(settings):
        if not settings.quotas:
            advice = "set quotas if tenants share it: tenants/*: streams=1000 bytes=10GiB"
            yield hint("quotas", "none: each key may store as much as the disk holds", advice)
    elif not settings.listens_on_loopback and settings.insecure and not settings.allowed_host:
        advice = "set allowed_host to the names that clients use"
        yield hint("names", "requests by a name of this server are refused (421)", advice)
    if settings.cors_origin == "*" and not access_is_on(settings):
        advice = "name the origins in cors_origin, or leave it out"
        yield hint("web pages", "any page in a browser on this machine can use this server", advice)


def _clock() -> Iterator[Finding]:
    now = datetime.fromtimestamp(time.time(), UTC)
    if now < _BUILT:
        yield problem(
            "clock",
            f"it says {now:%Y-%m-%d}, which cannot be right",
            "set the clock: TTLs, expiry and leases go by it",
        )
