"""`headwater pipeline`: streams into tables, on Spark.

Spark is large and most installations do not use it, so it is only imported when a pipeline is
actually run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import steering
from headwater.cli.exits import CliError, one_line, usage
from headwater.cli.output import Json, write_json, write_line
from headwater.cli.records import PipelineRecord
from headwater.cli.shell import say
from headwater.cli.target import Target, with_target
from headwater.client import HeadwaterError
from headwater.core.pipelines import LOCAL_MASTER, ON_ERROR, PIPELINES

if TYPE_CHECKING:
    from pyspark_headwater.pipelines.reporting import Progress
    from pyspark_headwater.pipelines.running import Pipeline

app = typer.Typer(no_args_is_help=True)

Master = Annotated[str, typer.Option("--master", help="Where Spark runs, as in spark://host:7077.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Also show Spark's own output.")]
Root = Annotated[
    str,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Where the tables are: a directory, or an address such as s3://lake.",
    ),
]


@app.callback()
def _pipeline() -> None:
    """Turn streams into tables, and back, with Spark.

    Each pipeline remembers how far it got and continues from there, so you
    can stop it at any time. Needs an extra: pip install 'headwater[spark]'.

    Examples:

      headwater pipeline run archive --stream orders --root lake
      headwater pipeline run materialize --stream users --root lake --follow
      headwater pipeline run snapshot --stream users --root lake
      headwater pipeline replay lake/archive/orders copy --name restore
      headwater pipeline status --root lake
      headwater pipeline ls
      headwater pipeline pause archive-orders
    """


@app.command()
@with_target
def run(
    target: Target,
    kind: Annotated[str, typer.Argument(metavar="PIPELINE", help=f"{', '.join(PIPELINES)}.")],
    root: Root = "lake",
    stream: Annotated[str | None, typer.Option("--stream", help="The stream to read.")] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Pattern for several streams, such as 'shops/*'."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running when everything there is processed.")
    ] = False,
    master: Master = LOCAL_MASTER,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=1440, help="Length of a window of rollup.")
    ] = 1,
    limit: Annotated[
        int | None,
        typer.Option("--batch", min=1, metavar="MESSAGES", help="Messages in a micro-batch."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of the pipeline, if not its default.")
    ] = "",
    keep_replaced: Annotated[
        int,
        typer.Option(
            "--keep-replaced",
            min=1,
            max=24 * 365,
            metavar="HOURS",
            help="How long to keep files that a table no longer uses.",
        ),
    ] = 1,
    iceberg: Annotated[
        bool, typer.Option("--iceberg", help="Make the tables readable as Iceberg too.")
    ] = False,
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            metavar="|".join(ON_ERROR),
            help="With materialize: fail at a message that does not fit, or append it to "
            "quarantine/NAME and continue.",
        ),
    ] = "fail",
    changes: Annotated[
        bool, typer.Option("--changes", help="Keep a table of what materialize changed.")
    ] = False,
    changes_to: Annotated[
        str,
        typer.Option(
            "--changes-to",
            metavar="STREAM",
            help="Also append these changes to this stream; with --pattern, such as "
            "'changes/{stream}'.",
        ),
    ] = "",
    verbose: Verbose = False,
) -> None:
    """Run a pipeline: process what is there and exit, or follow.

    Prints a line for each micro-batch on stderr. Ctrl-C stops it; the next run
    continues where it stopped.

    Examples:

      headwater pipeline run archive --pattern 'shops/**' --root lake --follow
      headwater pipeline run rollup --stream orders --root lake --minutes 5
    """
    if kind not in PIPELINES:
        raise usage(f"there is no pipeline {kind!r}: choose {', '.join(PIPELINES)}")
    if on_error not in ON_ERROR:
        raise usage(f"--on-error is {' or '.join(ON_ERROR)}, not {on_error!r}")
    if (stream is None) == (pattern is None):
        raise usage("use --stream or --pattern, one of the two")
    options = _options(target)
    if stream is not None:
        options["stream"] = stream
    if pattern is not None:
        options["streamPattern"] = pattern
    if limit is not None and kind != "snapshot":
        options["maxOffsetsPerTrigger"] = str(limit)
    with _spark():
        from pyspark_headwater.pipelines.running import Pipeline
        from pyspark_headwater.pipelines.running import run as run_pipeline
        from pyspark_headwater.pipelines.session import check_master, session

        check_master(master)
        chosen = Pipeline(
            kind,
            root,
            options,
            minutes,
            follow,
            called=name,
            keep_replaced_h=keep_replaced,
            iceberg=iceberg,
            on_error=on_error,
            changes=changes,
            changes_to=changes_to,
        )
        chosen.check()
        _greet(options)
        _announce(chosen)
        spark = session(master, chosen.name, quiet=not verbose)
        run_pipeline(spark, chosen, lambda one: say(_line(one)))


@app.command()
@with_target
def replay(
    target: Target,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A Delta table, or files that Spark can read.")
    ],
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="The stream to append to; created if missing.")
    ],
    name: Annotated[str, typer.Option("--name", help="A name for this job.")],
    version: Annotated[
        int,
        typer.Option("--version", min=0, help="Version of the run; a higher number writes again."),
    ] = 0,
    form: Annotated[
        str, typer.Option("--format", help="Format of the files: parquet, json, csv, …")
    ] = "parquet",
    master: Master = LOCAL_MASTER,
    verbose: Verbose = False,
) -> None:
    """Append the rows of a table or of files to a stream, each row once.

    Repeating it with the same name and version appends nothing twice.

    Examples:

      headwater pipeline replay lake/archive/orders orders-copy --name restore
      headwater pipeline replay prices.csv prices --format csv --name load --version 2
    """
    with _spark():
        from pyspark_headwater.pipelines.replay import check_source, writing_options
        from pyspark_headwater.pipelines.replay import replay as replay_rows
        from pyspark_headwater.pipelines.session import check_master, session

        options = {**_options(target), "stream": stream}
        check_master(master)
        check_source(source)
        writing_options(options, name, version)
        _greet(options)
        say(f"{name}: starting Spark")
        spark = session(master, name, quiet=not verbose)
        replay_rows(spark, source, options, form=form, name=name, version=version)


@app.command()
@with_target
def status(target: Target, root: Root = "lake", json: Json = False) -> None:
    """Show how far the pipelines below a directory got, and how far behind they are.

    Examples:

      headwater pipeline status --root lake
      headwater pipeline status --root lake --json | jq .lag_messages
    """
    with _spark():
        from pyspark_headwater.options import read_options
        from pyspark_headwater.pipelines.reporting import noted, with_lag
        from pyspark_headwater.wire import wire_to

        server = read_options({**_options(target), "stream": "any"}, "stream read").server
        found = [with_lag(one, wire_to(server)) for one in noted(root)]
    if json:
        for one in found:
            write_json(_record(one))
        return
    if not found:
        say(f"no pipeline has run below {root}")
    for one in found:
        write_line(_line(one))


for command in (steering.ls, steering.show, steering.pause, steering.resume, steering.reset):
    app.command()(command)


def _options(target: Target) -> dict[str, str]:
    options = {"endpoint": target.url, "retryTimeout": "60"}
    if target.authorization is not None:
        options["token"] = target.authorization.removeprefix("Bearer ")
    return options


@contextmanager
def _spark() -> Iterator[None]:
    """Report Spark failures as one line, and Ctrl-C as Ctrl-C."""
    try:
        from pyspark.errors import PySparkException

        from pyspark_headwater.errors import HeadwaterSparkError, reason
    except ModuleNotFoundError as error:
        raise CliError(
            f"pipelines need Spark ({error.name} is missing): pip install 'headwater[spark]'"
        ) from None
    try:
        yield
    except (PySparkException, HeadwaterSparkError, HeadwaterError) as error:
        raise CliError(one_line(reason(str(error)))) from error


def _greet(options: dict[str, str]) -> None:
    """Wait for the server before starting Spark, which takes long and would be in vain."""
    from pyspark_headwater.options import read_options
    from pyspark_headwater.wire import wire_to

    wire_to(read_options(options, "stream read").server).greet()


def _announce(pipeline: Pipeline) -> None:
    say(f"{pipeline.name}: starting Spark, tables in {pipeline.root}")


def _line(progress: Progress) -> str:
    lag = "" if progress.lag_messages is None else f", {progress.lag_messages} messages behind"
    late = f" ({progress.lag_s:.0f} s)" if progress.lag_s else ""
    return (
        f"{progress.name}: batch {progress.batch}, {progress.rows} rows, "
        f"{progress.rows_per_s:.0f} rows/s, {progress.batch_ms} ms{lag}{late}"
    )


def _record(progress: Progress) -> PipelineRecord:
    return PipelineRecord(
        name=progress.name,
        pipeline=progress.kind,
        batch=progress.batch,
        rows=progress.rows,
        rows_per_s=progress.rows_per_s,
        batch_ms=progress.batch_ms,
        at=progress.at_ms,
        offsets=progress.offsets,
        lag_messages=progress.lag_messages,
        lag_s=progress.lag_s,
    )
