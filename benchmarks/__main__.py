"""The command line: measure, show, publish."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import machine, nginx, pages, procfs, subjects
from benchmarks.brokers import PEERS
from benchmarks.errors import BenchmarkError, ServerFailed
from benchmarks.load.process import wrk_installed
from benchmarks.peers import PEER_PACKAGE, peer_version
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.plot import draw
from benchmarks.report import print_machine, print_plan, print_results
from benchmarks.results import FILE_NAME, NGINX, PEER_CLIENT, PRISMA, SPARK_READERS, Results
from benchmarks.runner import run_scenario
from benchmarks.scenarios import ASKED_FOR, SCENARIOS
from benchmarks.scenarios.base import Context

_DEFAULT_OUT = Path(__file__).parent / "results"
_PLOT_NAME = "results.png"
_LOG_WIDTH = 160
# The scenarios that compare stream servers.
_SERVERS_COMPARED = {"append", "latency", "fanout", "catchup", "startup", "editor", "history"}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # A log has room for whole tables.
    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    saved = options.out / FILE_NAME
    try:
        if options.publish:
            _publish(saved, console)
        elif options.show:
            print_results(Results.load(saved), console)
        else:
            _measure(options, saved, console)
    except BenchmarkError as error:
        console.print(f"[red]{error}[/]")
        return 1
    except FileNotFoundError as error:
        console.print(f"[red]{error.filename} does not exist[/]; run the benchmarks first")
        return 1
    except KeyboardInterrupt:
        console.print("stopped; what was measured until then is saved")
        return 130
    return 0


def _publish(saved: Path, console: Console) -> None:
    results = Results.load(saved)
    if results.plan != FULL.name:
        raise BenchmarkError(f"{saved} is of the plan {results.plan}; only a full run is published")
    draw(results, pages.PAGE.parent / pages.IMAGE)
    for page in pages.publish(saved):
        console.print(f"wrote {page}")


def _measure(options: argparse.Namespace, saved: Path, console: Console) -> None:
    procfs.raise_file_limit()
    scenarios = options.only or [name for name in SCENARIOS if name not in ASKED_FOR]
    plan = _plan(options)
    print_plan(plan, scenarios, console)
    chosen = _chosen_subjects(options, scenarios, console)
    use_wrk = wrk_installed() if options.generator == "auto" else options.generator == "wrk"
    if use_wrk and not wrk_installed():
        raise BenchmarkError("wrk is not installed; use --generator own")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=options.data) as work:
        context = Context(plan, Path(work), use_wrk, options.python, not options.skip_reference)
        about = machine.describe(context.work_dir, options.python, use_wrk)
        results = Results(plan.name, about, _names(options, scenarios, chosen))
        print_machine(results, console)
        if options.add:
            results = _continued(results, saved, scenarios)
        try:
            for name in scenarios:
                console.rule(name, align="left")
                run_scenario(name, context, chosen, results, console)
                results.save(saved)
        finally:
            if results.measurements:
                results.machine["other work meanwhile"] = results.disturbance()
                results.save(saved)
                draw(results, options.out / _PLOT_NAME)
    print_results(results, console)
    console.print(f"saved in {options.out}")


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else FULL
    if options.repetitions is None:
        return plan
    return replace(plan, repetitions=options.repetitions, repeated={})


def _continued(new: Results, saved: Path, scenarios: list[str]) -> Results:
    """The saved results, without the scenarios that are measured now."""
    results = Results.load(saved)
    if results.plan != new.plan:
        raise BenchmarkError(f"{saved} is of the plan {results.plan}, which is not {new.plan}")
    results.forget(scenarios)
    results.subjects |= new.subjects
    return results


def _names(
    options: argparse.Namespace, scenarios: list[str], chosen: list[subjects.Subject]
) -> dict[str, str]:
    """Everything that may be measured, with display names."""
    names = {subject.name: subject.label for subject in chosen}
    if "spark" in scenarios:
        names |= SPARK_READERS
    if options.skip_reference:
        return names
    if "client" in scenarios:
        names[PEER_CLIENT] = f"{PEER_PACKAGE} {peer_version()}"
    if "groups" in scenarios:
        names |= {peer.name: peer.label for peer in PEERS}
    if "queries" in scenarios:
        names[PRISMA] = subjects.prisma_streams().label
    if "documents" in scenarios:
        names |= {peer.name: peer.label for peer in subjects.yjs_servers()}
    if "history" in scenarios:
        names[NGINX] = nginx.label()
    return names


def _chosen_subjects(
    options: argparse.Namespace, scenarios: list[str], console: Console
) -> list[subjects.Subject]:
    """The stream servers that take part; those that cannot be installed are left out."""
    chosen = [] if options.skip_headwater else [subjects.headwater(options.python)]
    if not options.skip_reference and {*scenarios} & {*_SERVERS_COMPARED, "queries", "documents"}:
        try:
            subjects.install_reference()
            published = [subjects.reference_file(), subjects.reference_memory()]
        except ServerFailed as error:
            console.print(f"without the published servers: {error}", highlight=False)
            published = []
        if {*scenarios} & _SERVERS_COMPARED:
            rust = subjects.rust_server()
            if rust is None:
                console.print("without the Rust server: neither its binary nor cargo is here")
            else:
                chosen.append(rust)
            chosen += published
    if not chosen:
        raise BenchmarkError("nothing is left to measure")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Headwater beside other servers and the client from PyPI.",
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(SCENARIOS), metavar="NAME",
        help=f"run only these scenarios: {', '.join(SCENARIOS)}; without it, all but "
        f"{' and '.join(ASKED_FOR)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="short and small, to try the harness")
    parser.add_argument(
        "--repetitions", type=int, choices=range(1, 10), metavar="N",
        help="how often everything is measured; the median counts",
    )  # fmt: skip
    parser.add_argument(
        "--add", action="store_true",
        help="keep the saved results of other scenarios, and measure these in addition",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=_DEFAULT_OUT, help="where results are written")
    parser.add_argument(
        "--data", type=Path, help="where servers keep their data; not a tmpfs (default: temporary)"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs Headwater")
    parser.add_argument(
        "--generator", choices=["auto", "wrk", "own"], default="auto",
        help="load generator for appends; auto takes wrk when it is installed",
    )  # fmt: skip
    parser.add_argument("--skip-reference", action="store_true", help="measure Headwater only")
    parser.add_argument("--skip-headwater", action="store_true", help="measure the others only")
    parser.add_argument(
        "--show", action="store_true", help="show the saved results, measure nothing"
    )
    parser.add_argument(
        "--publish", action="store_true",
        help="put the saved results on record, into docs/benchmarks.md and the README; measure "
        "nothing",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    # If a run is terminated, its servers are stopped and its results saved.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
