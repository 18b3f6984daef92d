"""Builds access control and TLS from the settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from headwater.cli.serving.reloading import UNUSABLE, Reloader
from headwater.core.access import signed
from headwater.core.access.keys import KeyBook
from headwater.http.access.accounts import Accounts
from headwater.http.access.gate import Gate
from headwater.http.access.identity import Identity
from headwater.http.access.key_sets import FixedKeys, KeysAtUrl, KeySource, check_url
from headwater.http.access.keyring import Keyring
from headwater.http.access.tokens import TokenPolicy, Tokens
from headwater.http.access.verification import (
    InvalidKeySet,
    VerificationKey,
    parse_key_set,
    shared_secret,
)
from headwater.http.wire.tls import Certificate
from headwater.service.clock import Clock
from headwater.settings import Settings
from headwater.store.key_file import (
    KEYS_NAME,
    SECRET_NAME,
    KeyFile,
    KeyFileError,
    KeyPlace,
    load_secret,
)
from headwater.store.permissions import make_directory

if TYPE_CHECKING:
    from headwater.store.postgresql.keys import KeyTable

_KEY_BYTES_MAX: Final = 256 * 1024

log = structlog.get_logger()

Parse = Callable[[bytes], list[VerificationKey]]


class CannotServe(Exception):
    """The server cannot start; the message says why in one line."""


def keys_place(settings: Settings) -> KeyPlace | None:
    if settings.keys_file:
        return KeyFile(Path(settings.keys_file))
    if settings.engine_kind == "postgresql":
        return key_table(settings.engine)
    return None if settings.engine_kind == "memory" else KeyFile(settings.data / KEYS_NAME)


@cache
def key_table(address: str) -> KeyTable:
    """The keys in a database, over the one connection that this process needs."""
    from headwater.store.postgresql.keys import KeyTable

    return KeyTable(address)


def access_is_on(settings: Settings) -> bool:
    if settings.access != "auto":
        return settings.access == "on"
    if settings.jwt_secret_file or settings.jwt_jwks:
        return True
    try:
        place = keys_place(settings)
        return place is not None and place.load() is not None
    except KeyFileError:
        # There are some, or there may be. Using them will show why they cannot be used.
        return True


def check_address(settings: Settings) -> None:
    """Without access control, only this machine may connect, unless explicitly allowed."""
    if settings.listens_on_loopback or settings.insecure or access_is_on(settings):
        return
    create = "headwater keys create --name admin --admin '**'"
    key = f"make a key first (`{create}`)"
    if keys_place(settings) is None:
        key = f"make a key in a file (`{create} --keys-file keys.json`) and use --keys-file"
    raise CannotServe(
        f"{settings.host} is reachable from other machines and anyone could read and write; "
        f"{key}, or use --host 127.0.0.1, or --insecure if that is what you want"
    )


def open_certificate(settings: Settings, reloader: Reloader) -> Certificate | None:
    if not settings.tls_cert and not settings.tls_key:
        return None
    if not (settings.tls_cert and settings.tls_key):
        raise CannotServe("TLS needs both --tls-cert and --tls-key")
    try:
        certificate = Certificate(Path(settings.tls_cert), Path(settings.tls_key))
        files = (certificate.chain, certificate.key)
        reloader.watch(files, certificate.load, certificate.use)
    except UNUSABLE as error:
        raise CannotServe(str(error)) from None
    return certificate


def open_gate(settings: Settings, reloader: Reloader, clock: Clock) -> Gate | None:
    limits = settings.limits()
    accounts = None
    if limits.requests_per_s_max or limits.bytes_per_s_max:
        accounts = Accounts(limits)
    identity = None
    try:
        place = keys_place(settings)
        if access_is_on(settings):
            identity = _identity(settings, reloader)
        elif settings.access == "auto" and place is not None:
            reloader.watch_keys(place, _announce)
    except UNUSABLE as error:
        raise CannotServe(str(error)) from None
    return None if identity is None and accounts is None else Gate(identity, accounts, clock)


def _announce(book: KeyBook | None) -> None:
    """Keys were added to a server that requires none."""
    if book is not None and book.keys:
        log.warning(
            "keys_found",
            keys=len(book.keys),
            advice="this server stays open to all until it is started again; from then on every "
            "request needs one of them",
        )


def _identity(settings: Settings, reloader: Reloader) -> Identity:
    keyring = Keyring()
    place = keys_place(settings)
    if place is not None:
        reloader.watch_keys(place, lambda book: keyring.replace(book or KeyBook()))
    return Identity(keyring, _tokens(settings, reloader), signing_secret(settings))


def signing_secret(settings: Settings) -> bytes:
    """The secret that addresses are signed with."""
    if settings.signing_secret_file:
        return load_secret(Path(settings.signing_secret_file))
    if settings.engine_kind == "memory":
        return secrets.token_bytes(signed.SECRET_BYTES)
    if settings.engine_kind == "postgresql":
        return key_table(settings.engine).secret()
    make_directory(settings.data)
    return load_secret(settings.data / SECRET_NAME)


def _tokens(settings: Settings, reloader: Reloader) -> Tokens:
    policy = TokenPolicy(
        settings.jwt_audience,
        settings.jwt_issuer,
        settings.jwt_leeway_ms / 1000,
        settings.jwt_claim,
    )
    sources: list[KeySource] = []
    if settings.jwt_secret_file:
        path = Path(settings.jwt_secret_file)
        sources.append(_file_of_keys(path, lambda raw: [shared_secret(raw.strip())], reloader))
    if settings.jwt_jwks and not settings.jwt_audience:
        # A publisher of keys signs tokens for others as well.
        raise CannotServe("--jwt-jwks needs --jwt-audience, or tokens meant for others would do")
    if "://" in settings.jwt_jwks:
        at_url = KeysAtUrl(check_url(settings.jwt_jwks))
        reloader.each_time(at_url.refresh_if_due)
        reloader.at_end(at_url.stop)
        reloader.watches.append(at_url.watch)
        sources.append(at_url)
    elif settings.jwt_jwks:
        sources.append(_file_of_keys(Path(settings.jwt_jwks), parse_key_set, reloader))
    return Tokens(sources, policy)


def _file_of_keys(path: Path, parse: Parse, reloader: Reloader) -> FixedKeys:
    source = FixedKeys([])

    def load() -> list[VerificationKey]:
        try:
            with path.open("rb") as file:
                return parse(file.read(_KEY_BYTES_MAX))
        except (InvalidKeySet, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidKeySet(f"cannot use {path}: {reason}") from None

    reloader.watch([path], load, source.replace)
    return source
