"""What `python -m build` makes: complete, and all it takes to run a server elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main

from headwater import __version__
from headwater.cli.main import app
from scripts.homebrew_formula import formula
from tests.support.server import HOST, ServerProcess, free_port

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src"
COMMAND_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp("dist")
    # -P, because the directory `build` of a checkout is not the module.
    run(
        sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(directory), str(ROOT)
    )
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def binaries(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that has the wheel, and sees the dependencies of this one."""
    directory = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    # Lines of such a file are put on the path and no further, so our editable install is not seen.
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(dependencies))
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(built.wheel))
    return python.parent


def run(*command: str, cwd: Path | None = None) -> str:
    ran = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def environment() -> dict[str, str]:
    """This one, without what points at the sources or at another server."""
    prefixes = ("HEADWATER_", "STREAM_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def packaged_sources() -> set[str]:
    files = (path for path in SOURCES.rglob("*") if path.is_file())
    return {str(path.relative_to(SOURCES)) for path in files if "__pycache__" not in path.parts}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = f"headwater-{__version__}.dist-info/METADATA"
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == packaged_sources()
    assert "headwater/http/console/index.html" in names
    assert "headwater/py.typed" in names


def test_the_source_distribution_holds_what_it_takes_to_build(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in packaged_sources()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    # Homebrew installs what is pinned here.
    assert "requirements/run.txt" in names


def test_the_formula_is_about_the_source_distribution(built: Built) -> None:
    url = f"https://example.com/releases/{built.sdist.name}"
    text = formula(built.sdist, url)
    digest = hashlib.sha256(built.sdist.read_bytes()).hexdigest()
    for line in (f'url "{url}"', f'version "{__version__}"', f'sha256 "{digest}"'):
        assert f"  {line}\n" in text
    # Every block that begins ends, and the service and completions are commands that exist.
    begun = re.findall(r"^ *(?:class|def|service do|test do)\b", text, re.MULTILINE)
    assert len(begun) == len(re.findall(r"^ *end$", text, re.MULTILINE))
    root: Any = typer.main.get_command(app)
    used = re.findall(r'(?:opt_bin|bin)/"headwater", "([a-z]+)"', text)
    assert set(used) == {"completion", "serve"}
    for name in (*used, *re.findall(r"/headwater ([a-z]+) --url", text)):
        assert root.get_command(typer.Context(root), name) is not None
    with pytest.raises(ValueError, match="https"):
        formula(built.sdist, "")


def test_the_metadata_says_what_it_is(built: Built) -> None:
    about = metadata(built.wheel)
    assert about["Name"] == "headwater"
    assert about["Version"] == __version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload() == (ROOT / "README.md").read_text()
    assert about["Keywords"]
    assert "Programming Language :: Python :: 3.14" in about.get_all("Classifier", [])


def test_the_changelog_is_about_this_version() -> None:
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert headings[0].startswith(f"## {__version__} (")


def test_the_command_is_that_of_the_wheel(binaries: Path, tmp_path: Path) -> None:
    assert run(str(binaries / "headwater"), "--version") == f"headwater {__version__}\n"
    where = run(
        str(binaries / "python"), "-c", "import headwater; print(headwater.__file__)", cwd=tmp_path
    )
    assert Path(where).is_relative_to(binaries.parent)


@contextmanager
def installed_server(binaries: Path, directory: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--memory", python=binaries / "python", cwd=directory) as server:
        yield server


def test_a_server_of_the_wheel_is_written_to_and_read_from(binaries: Path, tmp_path: Path) -> None:
    headwater = str(binaries / "headwater")
    with installed_server(binaries, tmp_path) as server:
        at = ("--url", server.url)
        run(headwater, "create", "orders", *at, cwd=tmp_path)
        run(headwater, "append", "orders", '{"id": 1}', *at, cwd=tmp_path)
        assert run(headwater, "read", "orders", *at, cwd=tmp_path) == '{"id": 1}\n'


def test_a_server_of_the_wheel_has_its_console(binaries: Path, tmp_path: Path) -> None:
    console = SOURCES / "headwater" / "http" / "console"
    with (
        installed_server(binaries, tmp_path) as server,
        httpx.Client(base_url=f"http://{HOST}:{server.port}/console/", trust_env=False) as client,
    ):
        for path in console.rglob("*"):
            if path.suffix in (".js", ".css", ".svg", ".html"):
                name = "" if path.name == "index.html" else str(path.relative_to(console))
                assert client.get(name).content == path.read_bytes(), path.name


# ── Without extras ───────────────────────────────────────────────────────────────────────────

EXTRAS = ("deltalake", "obstore", "pandas", "psycopg", "pyarrow", "pycrdt", "pyspark")


@pytest.fixture(scope="module")
def bare(binaries: Path) -> Iterator[Path]:
    """The same commands, where nothing is installed but what the package always needs."""
    (packages,) = binaries.parent.glob("lib/python*/site-packages")
    absent = packages / "absent.pth"
    absent.write_text(f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n")
    yield binaries
    absent.unlink()


def test_without_extras_there_is_a_client_a_command_and_a_server(
    bare: Path, tmp_path: Path
) -> None:
    headwater, data = str(bare / "headwater"), str(tmp_path / "data")
    with ServerProcess("--data", data, python=bare / "python", cwd=tmp_path) as server:
        at = ("--url", server.url)
        run(headwater, "create", "orders", *at, cwd=tmp_path)
        run(headwater, "append", "orders", '{"id": 1}', *at, cwd=tmp_path)
        assert run(headwater, "read", "orders", *at, cwd=tmp_path) == '{"id": 1}\n'
        bulk = f"{server.url}/v1/stream/orders/_bulk"
        arrow = {"Accept": "application/vnd.apache.arrow.stream"}
        assert httpx.get(bulk, trust_env=False).status_code == 200
        refused = httpx.get(bulk, headers=arrow, trust_env=False)
        assert (refused.status_code, refused.json()["error"]["code"]) == (406, "arrow_unavailable")
    run(headwater, "verify", data, cwd=tmp_path)
    assert "Pipelines" in run(headwater, "--help", cwd=tmp_path)


@pytest.mark.parametrize(
    "arguments, extra",
    [
        (["serve", "--data", "d", "--history-store", "file:///nowhere"], "history"),
        (["serve", "--data", "d", "--documents"], "documents"),
        (["serve", "--engine", "postgresql://nowhere/x"], "postgres"),
        (["sql", "SELECT 1"], "tables"),
        (["restore", "--from", "s3://bucket/x", "--data", "d"], "history"),
    ],
)
def test_what_needs_an_extra_says_which(
    bare: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    ran = subprocess.run(
        [bare / "headwater", *arguments],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode in (1, 2)
    assert f"pip install 'headwater[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_up_with_a_demo_where_nothing_else_is_installed(bare: Path, tmp_path: Path) -> None:
    """What the first page says: pip install headwater && headwater up --demo."""
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [bare / "headwater", "up", "--demo", "--port", str(port), "--data", "data"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not sold(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        # Tables need more, and it says what.
        while "pip install 'headwater[spark]'" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
    finally:
        process.terminate()
        process.wait(COMMAND_TIMEOUT_S)
    assert "Traceback" not in log.read_text()


def sold(port: int) -> bool:
    """Whether the demo has written something."""
    try:
        url = f"http://{HOST}:{port}/v1/stream/demo/sales?offset=-1"
        answer = httpx.get(url, trust_env=False)
        return answer.status_code == 200 and bool(answer.json())
    except (httpx.HTTPError, ValueError):
        return False
