"""Run the simulation for a seed, twice, and compare: ``python -m tests.simulation SEED``.

With ``--trace`` everything that happened is printed; with ``--runs N`` the seeds from SEED on are
run, each twice.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

import structlog

from tests.simulation.simulation import Outcome, Scale, simulate


def run_twice(seed: int, scale: Scale) -> Outcome:
    first, second = simulate(seed, scale), simulate(seed, scale)
    if first.trace != second.trace:
        raise AssertionError("two runs of one seed differ: the simulation is not deterministic")
    return first


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--clients", type=int, default=Scale.clients)
    parser.add_argument("--steps", type=int, default=Scale.steps)
    parser.add_argument("--phases", type=int, default=Scale.phases)
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    options = parser.parse_args()
    # Failed commits are what this is about; the server need not report each of them.
    wrapper = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=wrapper)
    scale = Scale(options.clients, options.steps, options.phases)
    for seed in range(options.seed, options.seed + options.runs):
        try:
            outcome = run_twice(seed, scale)
        except Exception:
            traceback.print_exc()
            print(f"seed {seed} failed; repeat it with: python -m tests.simulation {seed} --trace")
            return 1
        if options.trace:
            print(*outcome.trace, sep="\n")
        requests = sum(outcome.counts.values())
        print(f"seed {seed}: {requests} requests, {outcome.transactions} transactions, all correct")
        if options.runs == 1:
            for what, count in sorted(outcome.counts.items()):
                print(f"  {count:6} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
