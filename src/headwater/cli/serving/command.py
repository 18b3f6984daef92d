"""`headwater serve` and `headwater up`: one option per setting, so that they cannot drift apart."""

from __future__ import annotations

import inspect
import os
import tomllib
from copy import copy
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic.fields import FieldInfo

from headwater.cli.exits import CliError, usage
from headwater.cli.shell import say
from headwater.core.pipelines import ON_ERROR
from headwater.settings import Settings, load_settings
from headwater.settings.origins import told

if TYPE_CHECKING:
    from headwater.cli.serving.sidecar import Plan


# The settings that most people use. `--help-all` shows the others too.
_COMMON: Final = frozenset(
    {
        "access",
        "data",
        "engine",
        "history_store",
        "host",
        "insecure",
        "memory",
        "port",
        "public_url",
        "tls_cert",
        "tls_key",
    }
)
_HELP_COLUMNS_MAX: Final = 100


def _serve(config: Path | None = None, help_all: bool = False, **flags: Any) -> None:
    """Run the server.

    You can also set every option in the environment (HEADWATER_PORT=4437)
    or in a TOML file (port = 4437). Flags take precedence over the
    environment, and the environment over the file. These are the common
    options; --help-all shows all of them.

    Examples:

      headwater serve
      headwater serve --data /var/lib/headwater --port 8080
      headwater serve --memory
      headwater serve --engine postgresql://db.example.com/headwater
    """
    _run(_settings(config, flags))


def _up(
    lake: Path = Path("lake"),
    pipelines: bool = True,
    demo: bool = False,
    iceberg: bool = False,
    on_error: str = "fail",
    config: Path | None = None,
    help_all: bool = False,
    **flags: Any,
) -> None:
    """Run the server and keep tables of its streams: everything on one machine.

    The pipelines archive, materialize and rollup run alongside the server,
    in one Spark session on this machine. They read all JSON streams,
    including those created later; `headwater sql` queries their tables. If
    they die, they are restarted. Without Spark or Java, the server runs
    without them.

    Ctrl-C stops everything cleanly, and the next start continues from there.
    All options of `headwater serve` work too; --help-all shows them.

    Examples:

      headwater up
      headwater up --demo
      headwater up --data /var/lib/headwater --lake /var/lib/lake --port 8080
    """
    from headwater.cli.serving.access import access_is_on
    from headwater.cli.serving.sidecar import TOKEN_VARIABLE, Plan

    if on_error not in ON_ERROR:
        raise usage(f"--on-error is {' or '.join(ON_ERROR)}, not {on_error!r}")
    settings = _settings(config, flags)
    if pipelines and settings.engine_kind == "memory":
        raise usage("tables outlive streams in memory: leave --memory out, or use --no-pipelines")
    if settings.tls_cert:
        raise usage("with TLS, use `headwater serve` and `headwater pipeline run`, one by one")
    token = os.environ.get(TOKEN_VARIABLE, "").removeprefix("Bearer ") or None
    if access_is_on(settings) and token is None and (pipelines or demo):
        say(f"only the server runs: set {TOKEN_VARIABLE} to a key that may admin all streams")
        pipelines = demo = False
    _run(settings, Plan(lake, pipelines, demo, token, iceberg, on_error))


def _run(settings: Settings, sidecar: Plan | None = None) -> None:
    # The server's own modules take a while to load, and no other command needs them.
    from headwater.cli.checkup.configuration import unknown_variables
    from headwater.cli.serving.access import CannotServe
    from headwater.cli.serving.logs import configure_logs
    from headwater.cli.serving.server import log, serve

    configure_logs(settings.log_level, settings.log_format)
    for variable, advice in unknown_variables():
        log.warning("no_such_setting", variable=variable, advice=advice)
    try:
        serve(settings, sidecar)
    except CannotServe as error:
        raise CliError(str(error)) from None


def _settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """The combined settings of flags, environment and file, if they are valid."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(config, given)
        settings.limits()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise usage(f"{config} is not TOML: {error}") from None
    except OSError as error:
        raise usage(f"--config: cannot read {config}: {error.strerror}") from None
    except ValueError as error:
        raise usage(told(error, config, given)) from None
    return settings


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    """Every option with its text below it: a table would cut off such long names."""
    if not wanted:
        return
    width = min(get_terminal_size().columns, _HELP_COLUMNS_MAX)
    indent = " " * 6
    lines = [ctx.get_usage(), ""]
    for parameter in map(copy, ctx.command.params):
        # Options have this; the type covers all parameters.
        parameter.hidden = False  # type: ignore[attr-defined]
        names, text = parameter.get_help_record(ctx) or ("", "")
        told = fill(text, width, initial_indent=indent, subsequent_indent=indent)
        lines += [f"  {names}", told, ""]
    typer.echo("\n".join(lines).rstrip())
    raise typer.Exit


def _option(name: str, info: FieldInfo) -> inspect.Parameter:
    """A command line option for a setting. Without a default: an option not given is not a flag."""
    flag = "--" + name.replace("_", "-")
    help_text = f"{info.description} (default: {_shown(info.default)})"
    kind: Any = info.annotation
    # Invalid numbers are reported with all other problems, in the same words.
    metavar = "<int>" if kind is int else None
    if kind not in (bool, Path):
        kind = str
    declarations = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    option = typer.Option(
        *declarations,
        help=help_text,
        show_default=False,
        hidden=name not in _COMMON,
        metavar=metavar,
    )
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def _own_option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _with_settings(command: Any, *own: inspect.Parameter) -> Any:
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
    help_all = inspect.Parameter(
        "help_all",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[
            bool,
            typer.Option(
                "--help-all", callback=_show_all, is_eager=True, help="Show every option, and exit."
            ),
        ],
    )
    parameters = [*own, config, *options, help_all]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


serve = _with_settings(_serve)
up = _with_settings(
    _up,
    _own_option(
        "lake",
        Annotated[Path, typer.Option("--lake", metavar="DIR", help="Directory of the tables.")],
        Path("lake"),
    ),
    _own_option(
        "pipelines",
        Annotated[
            bool, typer.Option("--pipelines/--no-pipelines", help="Whether to run the pipelines.")
        ],
        True,
    ),
    _own_option(
        "demo",
        Annotated[
            bool,
            typer.Option(
                "--demo", help="Write sample data to demo/sales and demo/customers for an hour."
            ),
        ],
        False,
    ),
    _own_option(
        "iceberg",
        Annotated[bool, typer.Option("--iceberg", help="Make the tables readable as Iceberg too.")],
        False,
    ),
    _own_option(
        "on_error",
        Annotated[
            str,
            typer.Option(
                "--on-error",
                metavar="|".join(ON_ERROR),
                help="When a message does not fit into a table of materialize: stop that "
                "stream's table, or append the message to a quarantine stream and continue.",
            ),
        ],
        "fail",
    ),
)
