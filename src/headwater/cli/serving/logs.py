"""Log lines: structured, on stderr, for people or for machines."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


class _StandardError:
    """Standard error, whatever that currently is.

    A line that cannot be written there (a full disk, a closed pipe) is dropped silently: the code
    that logs has more important things to finish.
    """

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


class _Libraries(logging.Handler):
    """Turns the log records of libraries into lines like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        line = structlog.get_logger().bind(library=record.name, message=record.getMessage())
        line.log(record.levelno, "library")


def configure_logs(level: str, fmt: str) -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _StandardError())),
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()], force=True)
