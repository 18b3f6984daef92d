"""The command line: what a person does at a prompt. Data on stdout, messages on stderr."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from headwater import __version__
from headwater.cli.logs import configure_logs
from headwater.cli.serve import CannotServe, serve
from headwater.settings import Settings, load_settings

app = typer.Typer(
    name="headwater",
    help="Durable streams: append-only logs over HTTP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def fail(message: str, code: int = 1) -> typer.Exit:
    """One clear line on stderr, then the end."""
    typer.echo(f"headwater: {message}", err=True)
    return typer.Exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


# ── serve ────────────────────────────────────────────────────────────────────────────────────


def _run_server(config: Path | None = None, **flags: Any) -> None:
    """Run the server.

    Every option can also be set in the environment (HEADWATER_PORT=4437) or in a TOML file
    (port = 4437). Flags win over the environment, and the environment over the file.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(config, given)
        settings.limits()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "settings"
        raise fail(f"{where}: {first['msg']}", 2) from None
    except (ValueError, OSError) as error:
        raise fail(str(error), 2) from None
    configure_logs(settings.log_level, settings.log_format)
    try:
        serve(settings)
    except CannotServe as error:
        raise fail(str(error)) from None


def _option(name: str, info: FieldInfo) -> inspect.Parameter:
    """A command line option for a setting. No default: what is not given is not a flag."""
    flag = "--" + name.replace("_", "-")
    help_text = f"{info.description} [default: {_shown(info.default)}]"
    kind: Any = info.annotation
    if kind not in (int, bool, Path):
        kind = str
    declarations = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    option = typer.Option(*declarations, help=help_text, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_settings(command: Any) -> Any:
    """Give the command one option per setting, so that the two cannot drift apart."""
    config = inspect.Parameter(
        "config",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option("--config", exists=True, dir_okay=False, help="A TOML file of settings."),
        ],
    )
    options = [_option(name, info) for name, info in Settings.model_fields.items()]
    command.__signature__ = inspect.Signature([config, *options])
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in (config, *options)
    }
    return command


app.command(name="serve")(_with_settings(_run_server))


# ── verify ───────────────────────────────────────────────────────────────────────────────────


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="A data directory.", exists=True)],
) -> None:
    """Check everything that a data directory holds.

    Walks every page, every stream and every append, and compares each with its checksum. Safe
    while a server is running. Exits with 1 when something is wrong.
    """
    from headwater.store.database import DATABASE_NAME
    from headwater.store.engine import Problem
    from headwater.store.verify import verify_database

    path = directory / DATABASE_NAME
    if not path.is_file():
        raise fail(f"{directory} holds no headwater database", 2)
    problems = 0
    for result in verify_database(path):
        if isinstance(result, Problem):
            problems += 1
            typer.echo(f"{result.where}: {result.what}")
        else:
            typer.echo(result, err=True)
    if problems:
        raise fail(f"{problems} problems found")
    typer.echo("ok")


def main() -> None:
    app()
