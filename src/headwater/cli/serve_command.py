"""`headwater serve`: one option per setting, so that the two cannot drift apart."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from headwater.cli.exits import CliError, usage
from headwater.settings import Settings, load_settings


def _serve(config: Path | None = None, **flags: Any) -> None:
    """Run the server.

    Every option can also be set in the environment (HEADWATER_PORT=4437) or
    in a TOML file (port = 4437). Flags win over the environment, and the
    environment over the file.

    Examples:

      headwater serve
      headwater serve --data /var/lib/headwater --port 8080
      headwater serve --memory
    """
    # The server's own modules take a while to load, and no other command needs them.
    from headwater.cli.logs import configure_logs
    from headwater.cli.serve import serve
    from headwater.cli.serve_access import CannotServe

    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(config, given)
        settings.limits()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "settings"
        raise usage(f"{where}: {first['msg']}") from None
    except (ValueError, OSError) as error:
        raise usage(str(error)) from None
    configure_logs(settings.log_level, settings.log_format)
    try:
        serve(settings)
    except CannotServe as error:
        raise CliError(str(error)) from None


def _option(name: str, info: FieldInfo) -> inspect.Parameter:
    """A command line option for a setting. No default: what is not given is not a flag."""
    flag = "--" + name.replace("_", "-")
    help_text = f"{info.description} (default: {_shown(info.default)})"
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
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def _with_settings(command: Any) -> Any:
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


serve = _with_settings(_serve)
