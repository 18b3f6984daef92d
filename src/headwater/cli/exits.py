"""How the command ends: the exit codes, and the error that ends it with one line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status, for scripts."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAUTHORISED = 5
    UNAVAILABLE = 6
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    ExitCode.OK: "Done. A followed stream ends so when it is closed and read to its end.",
    ExitCode.FAILED: "Failed for any other reason: refused by the server, declined at a question, "
    "problems found by `verify` or `doctor`, errors during `bench`, messages that failed in "
    "`consume`.",
    ExitCode.USAGE: "The command line, the configuration or the input makes no sense; nothing was "
    "sent, or nothing more.",
    ExitCode.NOT_FOUND: "There is no such stream, group or subscription, or it is gone.",
    ExitCode.CONFLICT: "It exists already, it is closed, or a newer producer epoch has taken over.",
    ExitCode.UNAUTHORISED: "The token is missing, unknown, or does not reach this far.",
    ExitCode.UNAVAILABLE: "The server cannot be reached, is overloaded or cannot do its work.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C, whatever the command; `tail` and `top` too.",
    ExitCode.PIPE_CLOSED: "Nobody reads the output, as in `headwater read s | head`.",
}


class CliError(Exception):
    """The end of a command: one line for stderr, and an exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def usage(message: str) -> CliError:
    return CliError(message, ExitCode.USAGE)


def one_line(text: str) -> str:
    """Foreign text made safe for a terminal: one line, no control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
