"""Around every command: arguments in, exit codes out, and never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import typer
from typer.core import TyperGroup

from headwater.cli.exits import CliError, ExitCode, one_line

DEBUG: Final = "HEADWATER_DEBUG"


class Shell(TyperGroup):
    """The group of all commands. Whatever happens, it says so in one line on stderr."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(
                args, prog_name or "headwater", complete_var, False, windows_expand_args, **extra
            )
        except typer.Abort:
            code = ExitCode.FAILED
        except typer.TyperException as error:
            code = _refuse(error)
        code = code if isinstance(code, int) else ExitCode.OK
        if not standalone_mode:
            return code
        sys.exit(_flushed(code))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            say("; ".join([error.message, *getattr(error, "__notes__", ())]))
            raise typer.Exit(error.code) from None
        except KeyboardInterrupt as interrupt:
            if sys.stderr.isatty():
                typer.echo(err=True)  # the terminal has just written ^C
                for note in getattr(interrupt, "__notes__", ()):
                    say(f"interrupted; {note}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except OSError as error:
            say(_os_error(error))
            raise typer.Exit(ExitCode.FAILED) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            say(f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where; report it")
            raise typer.Exit(ExitCode.FAILED) from None


def say(message: str) -> None:
    """A message: one line on stderr."""
    typer.echo(f"headwater: {one_line(message)}", err=True)


def discard_stdout() -> None:
    """Nobody reads any more; let what is still buffered go nowhere, without another complaint."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flushed(code: int) -> int:
    """Flush while errors can still be handled; at exit, Python would print them."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        return ExitCode.PIPE_CLOSED
    return code


def _refuse(error: typer.TyperException) -> int:
    """What the parser says about a command line it cannot make sense of."""
    message = error.format_message()
    # Without any arguments the help is the answer, and it has been printed.
    if message and type(error).__name__ != "NoArgsIsHelpError":
        context: typer.Context | None = getattr(error, "ctx", None)
        where = context.command_path if context else "headwater"
        say(f"{message.rstrip('.')}; see `{where} --help`")
    return error.exit_code


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
