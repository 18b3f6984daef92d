"""The command line: measure, show, plot, render."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import machine, nginx, procfs, subjects
from benchmarks.brokers import PEERS
from benchmarks.errors import BenchmarkError
from benchmarks.loading import wrk_installed
from benchmarks.markdown import render_into
from benchmarks.peers import PEER_PACKAGE, peer_version
from benchmarks.plan import FULL, QUICK
from benchmarks.plot import draw
from benchmarks.report import print_machine, print_results
from benchmarks.results import NGINX, PEER_CLIENT, SPARK_READERS, Results
from benchmarks.runner import run_scenario
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.base import Context

_CLIENT = "client"
_GROUPS = "groups"
_QUERIES = "queries"
_DOCUMENTS = "documents"
_HISTORY = "history"
_CLUSTER = "cluster"
_SPARK = "spark"
_ENDURANCE = "endurance"
_DEFAULT_OUT = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        if options.render is not None:
            render_into(options.render, options.out)
        elif options.show:
            print_results(Results.load(options.out), console)
        else:
            _measure(options, console)
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


def _measure(options: argparse.Namespace, console: Console) -> None:
    procfs.raise_file_limit()
    scenarios = options.only or list(SCENARIOS)
    chosen = _chosen_subjects(options, scenarios, console)
    names = {subject.name: subject.label for subject in chosen}
    if _CLIENT in scenarios and not options.skip_reference:
        names[PEER_CLIENT] = f"{PEER_PACKAGE} {peer_version()}"
    if _GROUPS in scenarios and not options.skip_reference:
        names |= {peer.name: peer.label for peer in PEERS}
    if _QUERIES in scenarios and not options.skip_reference:
        subjects.install_reference()
        peer = subjects.prisma_streams()
        names[peer.name] = peer.label
    if _DOCUMENTS in scenarios and not options.skip_reference:
        subjects.install_reference()
        names |= {peer.name: peer.label for peer in subjects.yjs_servers()}
    if _HISTORY in scenarios and not options.skip_reference:
        names[NGINX] = nginx.label()
    if _SPARK in scenarios:
        names |= SPARK_READERS
    use_wrk = wrk_installed() if options.generator == "auto" else options.generator == "wrk"
    if use_wrk and not wrk_installed():
        raise BenchmarkError("wrk is not installed; use --generator own")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=options.data) as work:
        plan = QUICK if options.quick else FULL
        if options.repetitions is not None:
            plan = replace(plan, repetitions=options.repetitions)
        context = Context(plan, Path(work), use_wrk, options.python, not options.skip_reference)
        about = machine.describe(context.work_dir, options.python, use_wrk)
        results = Results(plan.name, about, names)
        print_machine(results, console)
        try:
            for name in scenarios:
                console.rule(name, align="left")
                run_scenario(name, context, chosen, results, console)
        finally:
            if results.measurements:
                results.machine["other work meanwhile"] = results.disturbance()
                results.save(options.out)
                draw(results, options.out)
    print_results(results, console)
    console.print(f"saved in {options.out}")


def _chosen_subjects(
    options: argparse.Namespace, scenarios: list[str], console: Console
) -> list[subjects.Subject]:
    chosen = [] if options.skip_headwater else [subjects.headwater(options.python)]
    # The reference server takes no part in these.
    if not options.skip_reference and not set(scenarios) <= {
        _CLIENT,
        _GROUPS,
        _QUERIES,
        _DOCUMENTS,
        _CLUSTER,
        _SPARK,
        _ENDURANCE,
    }:
        subjects.install_reference()
        rust = subjects.rust_server()
        if rust is None:
            console.print("without the Rust server: neither its binary nor cargo is here")
        else:
            chosen.append(rust)
        chosen += [subjects.reference_file(), subjects.reference_memory()]
    if not chosen:
        raise BenchmarkError("nothing is left to measure")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Headwater beside the reference server and the client from PyPI.",
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(SCENARIOS), metavar="NAME",
        help=f"run only these scenarios: {', '.join(SCENARIOS)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="short and small, to try the harness")
    parser.add_argument(
        "--repetitions", type=int, choices=range(1, 10), metavar="N",
        help="how often everything is measured; the median counts",
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
    parser.add_argument("--skip-headwater", action="store_true", help="measure the reference only")
    parser.add_argument(
        "--show", action="store_true", help="show the saved results, measure nothing"
    )
    parser.add_argument(
        "--render", type=Path, metavar="FILE",
        help="put the saved results into the marked block of a Markdown file, measure nothing",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
