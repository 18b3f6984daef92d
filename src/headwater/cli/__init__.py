"""The `headwater` command."""

from headwater.cli.main import main

__all__ = ["main"]
