"""`headwater consume`: a worker of a group, at a prompt or as a service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from headwater.cli import remote
from headwater.cli.consume.handlers import Executor, Handled, Handler, Printer, Verdict
from headwater.cli.consume.worker import Report, Tally, Worker
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.failures import explain
from headwater.cli.groups.options import (
    AckTimeout,
    DeadLetter,
    MaxDeliveries,
    Start,
    find_group,
    group_settings,
)
from headwater.cli.groups.view import age
from headwater.cli.output import Json, write_json
from headwater.cli.quantities import parse_seconds
from headwater.cli.records import OutcomeRecord
from headwater.cli.shell import say
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.cli.units import Unit
from headwater.client import AsyncMessage, HeadwaterError

_PRINT_BATCH: Final = 100
_NACK_DELAY: Final = "1s"
_NACK_DELAY_MAX_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Job:
    """What to do, and how much of it at a time."""

    stream: str
    group: str
    unit: Unit
    command: str | None
    concurrency: int
    batch: int
    limit: int | None
    until_empty: bool
    nack_delay_s: float
    reject_code: int | None
    name: str
    json: bool


@with_target
def consume(
    target: Target,
    stream: remote.StreamPath,
    group: remote.GroupName,
    command: Annotated[
        str | None,
        typer.Option(
            "-x",
            "--exec",
            metavar="COMMAND",
            help="Run this in a shell for each message, instead of printing it.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--concurrency",
            min=1,
            max=1000,
            metavar="COUNT",
            help="How many commands to run at a time. Default: 1.",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            max=1000,
            metavar="COUNT",
            help="How many messages to fetch at once. Default: as many as run at a time; "
            f"{_PRINT_BATCH} without --exec.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("-n", "--max", min=1, metavar="COUNT", help="Stop after this many messages."),
    ] = None,
    until_empty: Annotated[
        bool,
        typer.Option("--until-empty", "--once", help="Exit when there are no more messages."),
    ] = False,
    nack_delay: Annotated[
        str | None,
        typer.Option(
            "--nack-delay",
            metavar="TIME",
            help=f"How long until a failed message is delivered again. Default: {_NACK_DELAY}.",
        ),
    ] = None,
    reject_code: Annotated[
        int | None,
        typer.Option(
            "--reject-code",
            min=1,
            max=255,
            metavar="CODE",
            help="Exit code with which the command rejects a message for good.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Name of this member. Default: host and process."
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the group if it does not exist, with the settings below."
        ),
    ] = False,
    start: Start = None,
    ack_timeout: AckTimeout = None,
    max_deliveries: MaxDeliveries = None,
    dead_letter: DeadLetter = None,
    json: Json = False,
) -> None:
    """Process the messages of a group: print them, or run a command for each.

    Without --exec, messages are written to stdout, one per line if the
    stream is JSON or text, and acknowledged once they are written.

    With --exec, the command gets the message on stdin, and
    HEADWATER_STREAM, HEADWATER_GROUP, HEADWATER_OFFSET,
    HEADWATER_MESSAGE_ID and HEADWATER_DELIVERIES in its environment. If it
    exits with 0, the message is acknowledged. If it exits with
    --reject-code, the message goes to the dead letters, or is dropped if
    the group has none. If it ends in any other way, the message is
    delivered again after --nack-delay. While it runs, the message stays
    with it, however long it takes. Its output goes where `consume` writes;
    with --json, it goes to stderr.

    If the very first commands cannot be run at all (exit codes 126 and
    127), `consume` gives the messages back and exits with 1. It also exits
    with 1 at the end of --max or --until-empty if a message failed.

    After Ctrl-C or SIGTERM, running commands finish, and messages that were
    not started go back and do not count as delivered. A second one stops
    the commands too. The exit code is 130 after Ctrl-C and 0 after SIGTERM.

    Examples:

      headwater consume orders packers --create
      headwater consume orders packers --exec './pack.sh' --concurrency 4
      headwater consume orders packers --exec 'jq -e .paid' --until-empty
      headwater consume orders billing --exec ./bill --reject-code 65 --nack-delay 1m
    """
    if command is None and any(x is not None for x in (concurrency, nack_delay, reject_code)):
        raise usage("--concurrency, --nack-delay and --reject-code are for --exec")
    settings = (start, ack_timeout, max_deliveries, dead_letter)
    if not create and any(setting is not None for setting in settings):
        raise usage("settings of the group need --create")
    if name is not None and not 1 <= len(name) <= 256:
        raise usage("--name has 1 to 256 characters")
    delay_s = parse_seconds(nack_delay or _NACK_DELAY)
    if delay_s > _NACK_DELAY_MAX_S:
        raise usage(f"--nack-delay is at most {age(_NACK_DELAY_MAX_S)}")
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        unit = Unit.of(handle.head().content_type)
        opened = remote.open_group(handle, group)
        if not create:
            opened.info()
        elif find_group(opened) is None:
            opened.ensure(**group_settings(client, handle, *settings))
    job = Job(
        stream=handle.path,
        group=group,
        unit=unit,
        command=command,
        concurrency=concurrency or 1,
        batch=min(batch or (concurrency or 1 if command else _PRINT_BATCH), limit or 1000),
        limit=limit,
        until_empty=until_empty,
        nack_delay_s=delay_s,
        reject_code=reject_code,
        name=name or f"{socket.gethostname()[:200]}-{os.getpid()}",
        json=json,
    )
    try:
        tally = asyncio.run(_work(target, job))
    except HeadwaterError as error:
        raise explain(error, url=target.url, stream=stream, group=group) from error
    if tally.signal is signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if tally.failed and tally.signal is None:
        raise CliError(f"{tally.failed:,} of {tally.total:,} messages failed")


async def _work(target: Target, job: Job) -> Tally:
    # Printing is quick, so a whole batch may be in progress.
    concurrency = job.concurrency if job.command else job.batch
    async with target.connect_async(patience_s=PATIENT_S) as client:
        consumer = (
            client.stream(job.stream)
            .group(job.group)
            .consume(
                consumer=job.name,
                concurrency=concurrency,
                batch=job.batch,
                until_empty=job.until_empty,
            )
        )
        worker = Worker(
            consumer,
            _handler(job),
            _reporter(job),
            concurrency=concurrency,
            limit=job.limit,
            nack_delay_s=job.nack_delay_s,
        )
        return await worker.run()


def _handler(job: Job) -> Handler:
    if job.command is None:
        return Printer(job.unit, json=job.json)
    return Executor(
        job.command,
        job.unit,
        {"HEADWATER_STREAM": job.stream, "HEADWATER_GROUP": job.group},
        reject_code=job.reject_code,
        to_stderr=job.json,
    )


def _reporter(job: Job) -> Report:
    again = f"it is delivered again in {age(job.nack_delay_s)}"

    def report(message: AsyncMessage, handled: Handled | None) -> None:
        if handled is None:
            say(f"message {message.id} was lost to another member; it may be done twice")
        elif handled.verdict is Verdict.NACK:
            say(f"message {message.id}: {_ending(handled)}; {again}")
        elif handled.verdict is Verdict.REJECT:
            say(f"message {message.id}: {_ending(handled)}; it was rejected")
        if job.json and job.command is not None:
            write_json(
                OutcomeRecord(
                    id=message.id,
                    offset=message.offset,
                    deliveries=message.deliveries,
                    outcome=handled.verdict.value if handled else "lost",
                    exit_code=handled.exit_code if handled else None,
                )
            )

    return report


def _ending(handled: Handled) -> str:
    code = handled.exit_code or 0
    return f"the command {f'ended with {code}' if code >= 0 else f'was killed by signal {-code}'}"
