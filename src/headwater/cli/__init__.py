"""The `headwater` command."""

import os
import signal
import sys
from contextlib import suppress

from headwater import __version__


def main() -> None:
    """Run the command line; the entry point of `headwater` and of `python -m headwater`."""
    _fill_in_streams()
    if sys.argv[1:] == ["--version"]:
        # If it cannot be written, the app tries again and says so.
        with suppress(OSError):
            print(f"headwater {__version__}", flush=True)
            return
    try:
        # Loading takes a moment, and an interrupt can arrive during it.
        from headwater.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # Everything is done, and another Ctrl-C has nothing left to interrupt.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _fill_in_streams() -> None:
    """Open something harmless in place of a closed stdin, stdout or stderr (`>&-`).

    Otherwise the next file or connection to be opened would take its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we run


__all__ = ["main"]
