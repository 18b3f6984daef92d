"""`headwater health`: is a server healthy?"""

from __future__ import annotations

import http.client
import ipaddress
import os
import ssl
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
import typer

from headwater.cli.deadlines import within
from headwater.cli.exits import CliError, ExitCode, one_line, usage
from headwater.cli.output import Json, write_json, write_line
from headwater.cli.quantities import parse_seconds
from headwater.cli.records import HealthRecord
from headwater.cli.target import Target, with_target
from headwater.contexts import check_ca

DEFAULT_PORT: Final = 4437
TIMEOUT_S_MAX: Final = 86_400.0


@with_target
def health(
    target: Target,
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Check the server on this machine, at $HEADWATER_PORT or 4437, with "
            "TLS or without.",
        ),
    ] = False,
    alive: Annotated[
        bool, typer.Option("--alive", help="Only check that the process answers.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="How long an answer may take.")
    ] = "2s",
    json: Json = False,
) -> None:
    """Check whether a server is healthy.

    Exits with 0 if the server's storage answers, with 1 if it does not, and
    with 6 if the server cannot be reached. No token is sent. On this
    machine (127.0.0.1, localhost) any certificate is accepted, because it
    names the server as others know it. --here is for container health
    checks: it finds out whether the server uses TLS.

    Examples:

      headwater health
      headwater health --url https://127.0.0.1:4437
      headwater health --here --alive --timeout 500ms
    """
    path = "/healthz" if alive else "/readyz"
    timeout_s = min(parse_seconds(timeout) or 0.001, TIMEOUT_S_MAX)
    if here:
        target, (status, body) = _probe_here(path, timeout_s)
    else:
        status, body = _probe(target, path, timeout_s)
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise CliError(f"{target.url} does not answer like a stream server") from None
    if status != 200:
        error = said.get("error", {})
        why = error.get("message", "") if isinstance(error, dict) else ""
        raise CliError(f"{target.url} is not ready: {why or f'it answered {status}'}")
    problems = said.get("problems")
    record = HealthRecord(
        url=target.url,
        status=one_line(str(said.get("status"))),
        problems=problems if isinstance(problems, dict) else {},
    )
    if json:
        write_json(record)
        return
    write_line(record.status)
    for name, problem in record.problems.items():
        write_line(f"  {one_line(f'{name}: {problem}')}")


def _probe_here(path: str, timeout_s: float) -> tuple[Target, tuple[int, bytes]]:
    """Try plain HTTP, then TLS: a server with TLS hangs up on a client that starts without it."""
    port = os.environ.get("HEADWATER_PORT", str(DEFAULT_PORT))
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise usage(f"$HEADWATER_PORT is {port!r}, which is not a port")
    plain = Target(f"http://127.0.0.1:{port}")
    try:
        return plain, _probe(plain, path, timeout_s)
    except CliError:
        secure = Target(f"https://127.0.0.1:{port}")
        return secure, _probe(secure, path, timeout_s)


def _probe(target: Target, path: str, timeout_s: float) -> tuple[int, bytes]:
    """One request on a new connection: a probe should be small, and load no client library."""
    url = urlsplit(target.url)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=check_ca(target.ca))
        if _is_here(url.hostname or ""):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(url.netloc, timeout=timeout_s, context=tls)
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=timeout_s)

    def ask() -> tuple[int, bytes]:
        connection.request("GET", url.path.rstrip("/") + path)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20)

    try:
        return within(timeout_s, ask)
    except UnicodeError as error:
        raise usage(f"{target.url!r} is not the address of a host: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CliError(f"cannot reach {target.url}: {reason}", ExitCode.UNAVAILABLE) from None
    finally:
        connection.close()


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
