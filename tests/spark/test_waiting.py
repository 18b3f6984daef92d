"""Nobody waits in silence for a server that is not there."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headwater.client.errors import HeadwaterError
from pyspark_headwater import waiting
from pyspark_headwater.options import read_options
from pyspark_headwater.wire import Wire
from tests.spark.world import Gateway, World


def _wire(endpoint: str, retry_s: int) -> Wire:
    options = {"endpoint": endpoint, "stream": "any", "retryTimeout": str(retry_s)}
    return Wire(read_options(options, "stream read").server)


@contextmanager
def _deaf() -> Iterator[str]:
    """An address where somebody takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def _nobody() -> Iterator[str]:
    """An address that is taken, but where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_an_address_where_nobody_is_gets_named(caplog: pytest.LogCaptureFixture) -> None:
    with _nobody() as endpoint:
        wire = _wire(endpoint, 4)
        with pytest.raises(HeadwaterError):
            wire.info("any")
        wire.close()
    assert f"waiting for the Headwater server: HEAD {endpoint}/v1/stream/any" in caplog.text
    assert "retryTimeout is 4" in caplog.text


def test_a_server_that_says_nothing_gets_named_before_it_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNANSWERED_S", 0.2)
    said = threading.Event()
    monkeypatch.setattr(waiting.log, "warning", lambda *_: said.set())
    with _deaf() as endpoint:
        wire = _wire(endpoint, 0)
        asking = threading.Thread(target=lambda: _ignore(wire), daemon=True)
        asking.start()
        assert said.wait(60), "the request is still pending, and nobody knows"
        assert asking.is_alive()
    asking.join(60)
    wire.close()


def _ignore(wire: Wire) -> None:
    with pytest.raises(HeadwaterError):
        wire.info("any")


def test_a_server_that_is_back_is_not_talked_about(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.stream("events", [1])
    fate = Gateway(world.url, lambda number, *_: "unavailable" if number < 2 else "pass")
    with fate.running():
        wire = _wire(fate.url, 60)
        assert wire.info(world.name()) is not None
        wire.close()
    assert caplog.text == ""


def test_status_and_time_are_told_while_a_server_refuses(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FAILING_S", 0.0)
    gateway = Gateway("http://127.0.0.1:1", lambda *_: "unavailable")
    with gateway.running():
        wire = _wire(gateway.url, 1)
        with pytest.raises(HeadwaterError):
            wire.info("any")
        wire.close()
    assert "status 503" in caplog.text


def test_a_query_that_gave_up_names_the_address(spark: SparkSession) -> None:
    with _nobody() as endpoint:
        reader = spark.read.format("headwater").option("endpoint", endpoint)
        with pytest.raises(AnalysisException, match=f"HEAD {endpoint}/v1/stream/any"):
            reader.options(stream="any", retryTimeout="1").load()


def test_the_command_says_it_before_spark_is_started() -> None:
    command = [sys.executable, "-m", "headwater", "pipeline", "run", "archive", "--stream", "any"]
    with _nobody() as endpoint:
        process = subprocess.Popen(
            [*command, "--url", endpoint], stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
        finally:
            process.kill()
            process.communicate()
    assert first.startswith(f"waiting for the Headwater server: GET {endpoint}")
