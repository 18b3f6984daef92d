"""What surrounds every command: arguments in, exit codes out, and never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar, Final

import typer
import typer.main

# Typer uses the first itself and does not re-export it. Typer returns completions but does not
# export their type.
from typer.core import CompletionItem, TyperGroup  # type: ignore[attr-defined]

from headwater.cli.exits import CliError, ExitCode, one_line
from headwater.contexts import ContextError

DEBUG: Final = "HEADWATER_DEBUG"
_MESSAGE_CHARS_MAX: Final = 2_000
# The extra that installs a package, for packages that are optional.
EXTRAS: Final = {
    "deltalake": "spark",
    "obstore": "history",
    "psycopg": "postgres",
    "pyarrow": "arrow",
    "pycrdt": "documents",
    "pyspark": "spark",
}


class Shell(TyperGroup):
    """The group of all commands. Any failure becomes one line on stderr."""

    table: ClassVar[Mapping[str, Mapping[str, str]]]
    """By help heading and name: the module and attribute of each command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.table)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Descriptions come from a table: asking the commands would load all of them."""
        if incomplete and not incomplete[0].isalnum():
            return super().shell_complete(ctx, incomplete)
        from headwater.cli.summaries import SUMMARIES

        return [
            CompletionItem(name, help=SUMMARIES.get(name))
            for name in self.commands
            if name.startswith(incomplete)
        ]

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
        except OSError as error:
            # The help could not be written; commands handle their own errors.
            code = _unwritten(error)
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
        except ContextError as error:
            say(str(error))
            raise typer.Exit(ExitCode.USAGE) from None
        except KeyboardInterrupt as interrupt:
            if sys.stderr.isatty():
                typer.echo(err=True)  # the terminal has just shown ^C
                for note in getattr(interrupt, "__notes__", ()):
                    say(f"interrupted; {note}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except UnicodeEncodeError as error:
            # Arguments may contain bytes that are not text, and no name contains those.
            say(f"{error.object!r} is not valid text")
            raise typer.Exit(ExitCode.USAGE) from None
        except OSError as error:
            say(_os_error(error))
            raise typer.Exit(ExitCode.FAILED) from None
        except ModuleNotFoundError as error:
            if (extra := EXTRAS.get((error.name or "").partition(".")[0])) is None:
                raise
            say(f"this needs {error.name}: pip install 'headwater[{extra}]'")
            raise typer.Exit(ExitCode.FAILED) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            say(f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where; report it")
            raise typer.Exit(ExitCode.FAILED) from None


class _Commands(dict[str, Any]):
    """Commands by name, each loaded on first use: most of them take a while."""

    def __init__(self, table: Mapping[str, Mapping[str, str]]) -> None:
        self._places = {
            name: (panel, place) for panel, of in table.items() for name, place in of.items()
        }
        super().__init__(dict.fromkeys(self._places))

    def get(self, name: str, default: Any = None) -> Any:
        if name in self and self[name] is None:
            self[name] = _load(name, *self._places[name])
        return super().get(name, default)


def _load(name: str, panel: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"headwater.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(rich_help_panel=panel)(found)
        found = alone
    command: Any = typer.main.get_command(found)
    command.name, command.rich_help_panel = name, panel
    return command


def say(message: str) -> None:
    """Write a message: one line on stderr, and not pages of foreign text."""
    line = one_line(message)
    if len(line) > _MESSAGE_CHARS_MAX:
        half = _MESSAGE_CHARS_MAX // 2
        line = f"{line[:half]}…{line[-half:]}"
    typer.echo(f"headwater: {line}", err=True)


def discard_stdout() -> None:
    """Nobody reads the output: drop what is still buffered, without another error."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flushed(code: int) -> int:
    """Flush while errors can still be handled; at exit, Python would print them."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _unwritten(error, code)
    return code


def _unwritten(error: OSError, code: int = ExitCode.OK) -> int:
    """Stdout takes no more. A command that has failed has already said why."""
    discard_stdout()
    if isinstance(error, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    if code == ExitCode.OK:
        say(_os_error(error))
        return ExitCode.FAILED
    return code


def _refuse(error: typer.TyperException) -> int:
    """Report what the parser says about an invalid command line."""
    message = error.format_message()
    # Without arguments the help is the answer, and it has been printed.
    if message and type(error).__name__ != "NoArgsIsHelpError":
        context: typer.Context | None = getattr(error, "ctx", None)
        where = context.command_path if context else "headwater"
        say(f"{message.rstrip('.')}; see `{where} --help`")
    return error.exit_code


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
