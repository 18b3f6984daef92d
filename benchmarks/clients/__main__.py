"""Runs one job: JSON in, ``ready`` and JSON out."""

import asyncio
import json
import sys
from importlib import import_module

from benchmarks.clients.jobs import ClientJob
from benchmarks.clients.watch import Watch

_MODULES = {"headwater": "benchmarks.clients.ours", "peer": "benchmarks.clients.theirs"}


def main() -> None:
    job = ClientJob.from_json(sys.stdin.read())
    # Imported by name: each of the two needs what only its own environment has.
    module = import_module(_MODULES[job.client])
    watch = Watch(job)
    if job.flavour == "blocking":
        result = module.run_blocking(job, watch)
    else:
        result = asyncio.run(module.run_async(job, watch))
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
