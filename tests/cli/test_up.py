"""up: a server and what runs beside it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.serving import demo, sidecar
from headwater.cli.serving.sidecar import Plan
from headwater.client import AsyncHeadwater, Headwater
from headwater.settings import Settings
from pyspark_headwater.pipelines.together import asked_for
from tests.cli.conftest import Run, Spawn

PRETEND = """
import json, sys
print(json.dumps({"is": "progress", "pipeline": "archive", "rows": 3}), flush=True)
sys.stdin.read()
open(sys.argv[sys.argv.index("--root") + 1] + "/ended", "w").close()
"""


def address(process: subprocess.Popen[bytes]) -> str:
    """Where it says that it listens."""
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    return next(word for word in line.split() if word.startswith("http://"))


def rest_of(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What it has written, also that of which a first line was read already."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.read(), process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_with_a_demo(spawn: Spawn, tmp_path: Path, number: signal.Signals) -> None:
    data = str(tmp_path / "data")
    process = spawn("up", "--data", data, "--port", "0", "--demo", "--no-pipelines")
    with Headwater(address(process)) as client:
        sales = client.stream(demo.SALES)
        sales.ensure(content_type="application/json")
        with sales.follow() as reader:
            assert next(reader.messages())["sale"] == 1
    process.send_signal(number)
    assert process.wait(timeout=60) == 0
    out, err = rest_of(process)
    assert b"demo/sales and demo/customers" in out
    assert b"Traceback" not in err
    assert b"sql" not in out


def test_it_takes_the_settings_of_a_server(run: Run) -> None:
    words = run("up", "--help-all", COLUMNS="200").out.split()
    for name in ("lake", "demo", "no-pipelines", *Settings.model_fields):
        assert f"--{name.replace('_', '-')}" in " ".join(words)


def test_what_makes_no_sense(run: Run) -> None:
    assert "--no-pipelines" in run("up", "--memory", code=2).err
    assert "fail or quarantine" in run("up", "--on-error", "hope", code=2).err
    assert "TLS" in run("up", "--tls-cert", "c", "--tls-key", "k", code=2).err


async def until_progress(plan: Plan, url: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Run a plan until its pipelines have told of rows."""
    async with plan.running(url, asyncio.Event()):
        said = ""
        async with asyncio.timeout(60):
            while "archive +3 rows" not in said:
                await asyncio.sleep(0.02)
                said += capfd.readouterr().err


def test_pipelines_beside_it(
    base_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "a lake"
    plan = Plan(lake, pipelines=True, demo=True, command=(sys.executable, "-c", PRETEND))

    asyncio.run(until_progress(plan, base_url, capfd))
    assert (lake / "ended").exists()


RECORDS = """
import json, pathlib, sys
root = pathlib.Path(sys.argv[sys.argv.index("--root") + 1])
(root / "words").write_text(json.dumps(sys.argv[1:]))
print(json.dumps({"is": "progress", "pipeline": "archive", "rows": 3}), flush=True)
sys.stdin.read()
"""


def test_what_the_pipelines_are_asked_for(
    base_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    command = (sys.executable, "-c", RECORDS)
    plan = Plan(tmp_path, True, False, None, iceberg=True, on_error="quarantine", command=command)

    asyncio.run(until_progress(plan, base_url, capfd))
    _, chosen = asked_for(json.loads(words.read_text()))
    assert all(one.iceberg and one.root == str(tmp_path) for one in chosen)
    assert {one.kind: one.on_error for one in chosen} == {
        "archive": "fail",
        "materialize": "quarantine",
        "rollup": "fail",
    }


FAILS_ONCE = """
import json, pathlib, sys, time
root = pathlib.Path(sys.argv[sys.argv.index("--root") + 1])
if not (root / "was here").exists():
    (root / "was here").touch()
    sys.exit("the Python worker did not come up")
while not (root / "go on").exists():
    time.sleep(0.02)
print(json.dumps({"is": "progress", "pipeline": "archive", "rows": 3}), flush=True)
sys.stdin.read()
"""


async def test_what_keeps_the_pipelines_from_running_is_told_to_the_server(
    base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def until(client: AsyncHeadwater, error: str | None) -> None:
        async with asyncio.timeout(60):
            while True:
                answer = await client.request("GET", "/v1/pipelines")
                found = {one["name"]: one["error"] for one in json.loads(answer.body)["pipelines"]}
                if "headwater up" in found and found["headwater up"] == error:
                    return
                await asyncio.sleep(0.02)

    command = (sys.executable, "-c", FAILS_ONCE)
    plan = Plan(tmp_path / "lake", pipelines=True, demo=False, command=command)
    async with AsyncHeadwater(base_url) as client:
        async with plan.running(base_url, asyncio.Event()):
            await until(client, "have ended (exit 1): the Python worker did not come up")
            (tmp_path / "lake" / "go on").touch()
            await until(client, None)
        monkeypatch.setattr(sidecar, "find_spec", lambda name: None)
        plan = Plan(tmp_path / "other", pipelines=True, demo=False)
        async with plan.running(base_url, asyncio.Event()):
            advice = "pip install 'headwater[spark]'"
            await until(client, f"do not run: they need Spark (pyspark is missing): {advice}")


def test_commands_to_paste(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Plan(Path("lake"), pipelines=True, demo=True)._greet()
    shown = capsys.readouterr().out
    for question in sidecar.QUESTIONS:
        assert f'sql "{question}"\n' in shown
    Plan(tmp_path / "a lake", pipelines=True, demo=False)._greet()
    assert capsys.readouterr().out.rstrip().endswith(f"sql --root '{tmp_path}/a lake'")


def test_the_server_goes_on_without(
    base_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    for lake in (tmp_path / "file" / "lake", tmp_path / "lake"):
        assert Plan(lake, pipelines=True, demo=False)._supervisor(base_url) is None or lake.exists()
    assert "the pipelines do not run" in capsys.readouterr().err
    # The second one is taken by now.
    assert Plan(tmp_path / "lake", pipelines=True, demo=False)._supervisor(base_url) is None
    assert "in use by another" in capsys.readouterr().err
    monkeypatch.setattr(sidecar, "find_spec", lambda name: None)
    assert Plan(tmp_path / "other", pipelines=True, demo=False)._supervisor(base_url) is None
    said = capsys.readouterr().err
    assert "pyspark is missing" in said
    assert said.count("\n") == 1


async def test_what_fails_beside_the_server_is_seen_and_begun_again(
    base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everything else that runs without a request."""
    attempts: list[int] = []
    done = asyncio.Event()

    async def feed(client: object, say: object) -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            raise ValueError("as the test wanted")
        done.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(demo, "feed", feed)
    plan = Plan(tmp_path / "lake", pipelines=False, demo=True)
    async with asyncio.timeout(120), plan.running(base_url, asyncio.Event()):
        await done.wait()
    feeding = plan.watches[0]
    assert (feeding.name, feeding.failures) == ("demo_feed", 1)
    assert "as the test wanted" in (feeding.problem or "")
