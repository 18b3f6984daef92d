"""The input of commands: lines of stdin or of files, all of it in one piece, values of options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.units import Unit
from headwater.client.protocol.values import UNREADABLE


@dataclass(frozen=True, slots=True)
class Message:
    """One message, and how much of the input has been read up to its end."""

    data: bytes
    read_bytes: int


class BadLine(CliError):
    """A line that is not a message. The lines before it have been passed on."""


def total_bytes(files: Sequence[Path]) -> int | None:
    """The size of the input, if known: pipes have none."""
    if not files:
        return None
    return sum(file.stat().st_size for file in files) or None


def read_messages(files: Sequence[Path], unit: Unit) -> Iterator[Message]:
    """One message per line, as lines arrive.

    In a JSON stream a line is a JSON value; empty lines are skipped. In any other it is the line
    with its line feed, which is added to a last line without one: otherwise the next append would
    continue that line.
    """
    read = 0
    for name, stream in _streams(files):
        with stream as lines:
            for number, line in enumerate(lines, 1):
                read += len(line)
                if unit is not Unit.MESSAGE:
                    yield Message(line if line.endswith(b"\n") else line + b"\n", read)
                elif text := line.strip(b" \t\r\n"):
                    yield Message(check_json(text, f"{name}, line {number}"), read)


def read_whole(files: Sequence[Path]) -> bytes:
    """The whole input in one piece."""
    pieces: list[bytes] = []
    for _, stream in _streams(files):
        with stream as source:
            pieces.append(source.read())
    return b"".join(pieces)


def read_argument(text: str) -> bytes:
    """The value of an option: the text itself, the content of @FILE, or stdin for @-."""
    if not text.startswith("@"):
        return os.fsencode(text)
    return read_whole([] if text == "@-" else [Path(text[1:])])


def parse_header(text: str) -> tuple[str, str]:
    return parse_pair(text, ":", "header", "'NAME: VALUE'")


def parse_pair(text: str, sign: str, what: str, form: str) -> tuple[str, str]:
    """A name and a value with a separator between them."""
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise usage(f"{text!r} is not a {what}; write {form}")
    return name.strip(), value.strip()


def split_json(text: bytes) -> list[bytes]:
    """The messages of a JSON body: the elements if it is an array, otherwise the body itself."""
    check_json(text, "the input")
    if not text.lstrip(b" \t\r\n").startswith(b"["):
        return [text]
    return [bytes(element) for element in msgspec.json.decode(text, type=list[msgspec.Raw])]


def check_json(text: bytes, where: str) -> bytes:
    """The text, if it is one JSON value. The server would refuse it too, but not say which line."""
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
    except UNREADABLE as error:
        raise BadLine(
            f"{where} is not JSON ({error}); plain text needs a stream made with --type text",
            ExitCode.USAGE,
        ) from None
    return text


def _streams(files: Sequence[Path]) -> Iterator[tuple[str, nullcontext[IO[bytes]] | IO[bytes]]]:
    if not files:
        yield "stdin", nullcontext(sys.stdin.buffer)
    for file in files:
        yield str(file), file.open("rb")
