"""Failures of the client as one line that says what to do."""

from __future__ import annotations

import os
import ssl

from headwater import client
from headwater.cli.exits import CliError, ExitCode, one_line
from headwater.client import HeadwaterError


def explain(
    error: HeadwaterError, *, url: str, stream: str | None = None, group: str | None = None
) -> CliError:
    """What a failure of the client means to a person, and what to do about it."""
    explained = _explain(error, url, stream, group)
    for note in getattr(error, "__notes__", ()):
        explained.add_note(note)
    return explained


def _explain(error: HeadwaterError, url: str, stream: str | None, group: str | None) -> CliError:
    name = f"stream {stream!r}" if stream else "stream"
    said = one_line(error.message)
    match error:
        case client.ProducerStopped(__cause__=client.HeadwaterError() as cause):
            cause.in_doubt = cause.in_doubt or error.in_doubt
            return _explain(cause, url, stream, group)
        case client.StreamNotFound():
            make = f", `headwater create {stream}` makes one" if stream else ""
            return CliError(
                f"there is no {name} on {url}; `headwater ls` lists them{make}", ExitCode.NOT_FOUND
            )
        case client.GroupNotFound():
            return CliError(
                f"the {name} has no group {group!r}; `headwater group ls` lists them, "
                f"`headwater group create {stream} {group}` makes one",
                ExitCode.NOT_FOUND,
            )
        case client.SubscriptionNotFound():
            return CliError(
                f"there is no such subscription on {url}; `headwater subscription ls` lists them",
                ExitCode.NOT_FOUND,
            )
        case client.Conflict(code="SUBSCRIPTION_ALREADY_EXISTS"):
            return CliError(said, ExitCode.CONFLICT)
        case client.LiveNotEnabled():
            return CliError(
                f"queries cannot wait on the {name}; `headwater live profile {stream} --kind "
                "state-protocol --touch` changes that"
            )
        case client.StreamGone():
            return CliError(
                f"the {name} was deleted and lives on only in its forks", ExitCode.NOT_FOUND
            )
        case client.Unauthorized():
            return CliError(
                f"{url} does not accept these credentials; set --token, HEADWATER_TOKEN or a "
                "context with a token",
                ExitCode.UNAUTHORISED,
            )
        case client.StaleEpoch(current_epoch=epoch):
            return CliError(
                f"this producer has moved on to epoch {epoch}; for new data use "
                f"--epoch {(epoch or 0) + 1}",
                ExitCode.CONFLICT,
            )
        case client.Forbidden():
            return CliError(
                f"the token does not allow this on {url}; use one that does ({said})",
                ExitCode.UNAUTHORISED,
            )
        case client.StreamClosed():
            return CliError(f"the {name} is closed and takes no more", ExitCode.CONFLICT)
        case client.ConfigConflict():
            return CliError(
                f"the {name} has another configuration: {said}; see `headwater info`",
                ExitCode.CONFLICT,
            )
        case client.StreamExists():
            return CliError(
                f"the {name} exists already; --if-missing leaves it as it is", ExitCode.CONFLICT
            )
        case client.Conflict():
            return CliError(f"refused for the {name}: {said}", ExitCode.CONFLICT)
        case client.TooLarge():
            return CliError(f"too large for the server: {said}; append smaller pieces")
        case client.RateLimited() | client.ServerUnavailable():
            return CliError(
                f"{url} cannot do it now: {said}; try again later{_doubt(error)}",
                ExitCode.UNAVAILABLE,
            )
        case client.ConnectionFailed():
            return CliError(
                f"cannot reach {url}: {_reason(error)}; is the server running there?"
                f"{_doubt(error)}",
                ExitCode.UNAVAILABLE,
            )
        case client.UnexpectedAnswer():
            return CliError(
                f"{url} does not answer like a stream server: {said}; check the address"
                f"{_doubt(error)}"
            )
        case client.ResponseError(help_url=page):
            return CliError(f"{url} refused it: {said}{f'; see {page}' if page else ''}")
        case _:
            return CliError(said)


def _doubt(error: HeadwaterError) -> str:
    if not error.in_doubt:
        return ""
    return " (what was sent last may be stored all the same; --producer makes repeating it safe)"


def _reason(error: BaseException) -> str:
    """The operating system's own words, from as deep as they are buried."""
    words = one_line(str(error).rpartition(": ")[2]) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message}; see --ca)"
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
            words = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return words[:1].lower() + words[1:]
