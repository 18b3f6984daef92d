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
    if isinstance(error, client.ProducerStopped):
        cause = error.__cause__
        if isinstance(cause, HeadwaterError):
            cause.in_doubt = cause.in_doubt or error.in_doubt
            return _explain(cause, url, stream, group)
    name, said = f"stream {stream!r}" if stream else "stream", one_line(error.message)
    if words := _missing(error, url, name, stream, group):
        return CliError(words, ExitCode.NOT_FOUND)
    if words := _conflict(error, name, said):
        return CliError(words, ExitCode.CONFLICT)
    if words := _not_allowed(error, url, said):
        return CliError(words, ExitCode.UNAUTHORISED)
    if words := _unavailable(error, url, said):
        return CliError(words, ExitCode.UNAVAILABLE)
    return CliError(_failure(error, url, name, stream, said))


def _missing(
    error: HeadwaterError, url: str, name: str, stream: str | None, group: str | None
) -> str | None:
    match error:
        case client.StreamNotFound():
            make = f", `headwater create {stream}` makes one" if stream else ""
            return f"there is no {name} on {url}; `headwater ls` lists them{make}"
        case client.GroupNotFound():
            return (
                f"the {name} has no group {group!r}; `headwater group ls` lists them, "
                f"`headwater group create {stream} {group}` makes one"
            )
        case client.SubscriptionNotFound():
            return f"there is no such subscription on {url}; `headwater subscription ls` lists them"
        case client.StreamGone():
            return f"the {name} was deleted and lives on only in its forks"
    return None


def _conflict(error: HeadwaterError, name: str, said: str) -> str | None:
    match error:
        case client.Conflict(code="SUBSCRIPTION_ALREADY_EXISTS"):
            return said
        case client.StaleEpoch(current_epoch=epoch):
            next_epoch = (epoch or 0) + 1
            return (
                f"this producer has moved on to epoch {epoch}; for new data use "
                f"--epoch {next_epoch}"
            )
        case client.StreamClosed():
            return f"the {name} is closed and takes no more"
        case client.ConfigConflict():
            return f"the {name} has another configuration: {said}; see `headwater info`"
        case client.StreamExists():
            return f"the {name} exists already; --if-missing leaves it as it is"
        case client.Conflict():
            return f"refused for the {name}: {said}"
    return None


def _not_allowed(error: HeadwaterError, url: str, said: str) -> str | None:
    match error:
        case client.Unauthorized():
            return (
                f"{url} does not accept these credentials; set --token, HEADWATER_TOKEN or a "
                "context with a token"
            )
        case client.Forbidden():
            return f"the token does not allow this on {url}; use one that does ({said})"
    return None


def _unavailable(error: HeadwaterError, url: str, said: str) -> str | None:
    match error:
        case client.RateLimited() | client.ServerUnavailable():
            return f"{url} cannot do it now: {said}; try again later{_doubt(error)}"
        case client.ConnectionFailed():
            reason = _reason(error)
            return f"cannot reach {url}: {reason}; is the server running there?{_doubt(error)}"
    return None


def _failure(error: HeadwaterError, url: str, name: str, stream: str | None, said: str) -> str:
    match error:
        case client.LiveNotEnabled():
            return (
                f"queries cannot wait on the {name}; `headwater live profile {stream} --kind "
                "state-protocol --touch` changes that"
            )
        case client.TooLarge():
            return f"too large for the server: {said}; append smaller pieces"
        case client.UnexpectedAnswer():
            doubt = _doubt(error)
            return f"{url} does not answer like a stream server: {said}; check the address{doubt}"
        case client.ResponseError(help_url=page):
            return f"{url} refused it: {said}{f'; see {page}' if page else ''}"
    return said


def _doubt(error: HeadwaterError) -> str:
    if not error.in_doubt:
        return ""
    return " (what was sent last may be stored all the same; --producer makes repeating it safe)"


def _reason(error: BaseException) -> str:
    """The operating system's own message, however deep it is nested."""
    words = one_line(str(error).rpartition(": ")[2]).rstrip(".") or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message}; see --ca)"
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
            words = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return words[:1].lower() + words[1:]
