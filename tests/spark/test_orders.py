"""The tables of the shop, as the README of `examples/orders` asks for them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import httpx

from examples.orders.worker import ORDERS
from headwater.client import Headwater
from tests.examples.running import running
from tests.spark.world import PATIENCE_S, ROOT

README = ROOT / "examples" / "orders" / "README.md"


def test_the_queries_of_the_readme(tmp_path: Path) -> None:
    queries = re.findall(r"^headwater (sql --root \./shop/lake .+)$", README.read_text(), re.M)
    assert len(queries) == 2
    command = ("-m", "examples.orders", "--port", "{port}", "--packing", "0.1")
    with running(*command, "--home", str(tmp_path / "shop")) as url:
        config = httpx.get(f"{url}config", trust_env=False).json()
        with Headwater(config["server"]) as client:
            for number in range(3):
                client.stream(ORDERS).append({"id": f"order-{number}", "item": "a lamp"})
        state, shipments = (shlex.split(query) for query in queries)
        await_answer(tmp_path, state, r"^shipped\s+3$")
        await_answer(tmp_path, shipments, r'"order":"order-2"')


def await_answer(home: Path, query: list[str], expected: str) -> None:
    """Until the tables have caught up."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = subprocess.run(
            [sys.executable, "-m", "headwater", *query],
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
        if re.search(expected, asked.stdout, re.M):
            return
        assert time.monotonic() < deadline, asked.stdout + asked.stderr
        time.sleep(1)
