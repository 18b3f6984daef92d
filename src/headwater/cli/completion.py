"""`headwater completion`: scripts with which shells complete commands, options and streams."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

# Typer prints these scripts for --show-completion, but only for the shell it runs in.
from typer._completion_shared import get_completion_script

from headwater.cli.output import write_line


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> None:
    """Print a script that makes a shell complete this command.

    It completes commands, options, contexts and the names of streams, with
    descriptions where the shell shows them.

    Examples:

      headwater completion bash > ~/.local/share/bash-completion/completions/headwater
      headwater completion zsh > "${fpath[1]}/_headwater"
      headwater completion fish > ~/.config/fish/completions/headwater.fish
    """
    script = get_completion_script(
        prog_name="headwater", complete_var="_HEADWATER_COMPLETE", shell=shell
    )
    write_line(script)
