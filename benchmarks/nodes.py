"""Several nodes of a cluster as one process tree: ``benchmarks.nodes PYTHON ENGINE PORT…``.

They are started one after the other and ended together. Each has its own label, ``node=0`` and so
on.
"""

import signal
import subprocess
import sys
from contextlib import suppress


def main() -> None:
    python, engine, *ports = sys.argv[1:]
    nodes = [
        subprocess.Popen(
            [python, "-m", "headwater", "serve", "--engine", engine, "--port", port,
             "--advertise", f"http://127.0.0.1:{port}", "--label", f"node={number}"],
        )
        for number, port in enumerate(ports)
    ]  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        for node in nodes:
            node.wait()
    for node in nodes:
        # All at once: there is no node left to hand anything over to.
        node.kill()
        node.wait()


if __name__ == "__main__":
    main()
