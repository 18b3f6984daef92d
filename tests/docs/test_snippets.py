"""Every snippet of the documentation is executed by a test, or says here why it is not.

The tests that execute them are spread over `tests`, where the servers, databases and browsers are
that they need. Here is the ledger: which test executes what, and what is only read. Even there
every call of `headwater` names a command, options and arguments that exist.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.settings import Settings
from tests.access.authority import Authority
from tests.docs import commands, test_editing, test_howtos, test_javascript, test_sql, test_tutorial
from tests.docs.markdown import DOCS, README, ROOT, Block, Page

PAGES = sorted(
    [README, ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *ROOT.glob("examples/*/*.md")]
)
CODE = ("sh", "python", "sql", "js", "html", "toml", "yaml", "ini", "nginx")
"""The rest is output, wire format or a drawing."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    yield from (block for block in Page(page).blocks if block.language in CODE)


# ── Who executes what ────────────────────────────────────────────────────────────────────────


def _language(*languages: str) -> Callable[[Block], bool]:
    return lambda block: block.language in languages


def _marked(block: Block) -> bool:
    return block.run


def _followed(name: str) -> Callable[[Block], bool]:
    lines = {block.line for block in test_howtos.blocks_of(name)}
    return lambda block: block.line in lines


EXECUTED: dict[str, tuple[str, Callable[[Block], bool]]] = {
    "README.md": ("tests/docs/test_examples.py", _marked),
    "docs/tutorial.md": (
        "tests/docs/test_tutorial.py",
        lambda block: block.run and not test_tutorial.needs_spark(block),
    ),
    "docs/howto/access.md": ("tests/access/test_howto.py", _language("sh", "python", "toml")),
    "docs/howto/django.md": ("tests/docs/test_recipes.py", _marked),
    "docs/howto/fastapi.md": ("tests/docs/test_recipes.py", _marked),
    "docs/howto/postgres.md": (
        "tests/postgres/test_howto.py",
        lambda block: block.run or block.language == "python",
    ),
    "docs/howto/cli.md": ("tests/cli/test_howto.py", _language("sh", "python")),
    "docs/howto/spark.md": ("tests/spark/test_howto.py", _language("python")),
    "docs/reference/configuration.md": ("tests/docs/test_configuration.py", _language("toml")),
    "docs/reference/cli.md": ("tests/cli/test_reference.py", _language()),
    **{
        f"docs/reference/{name}.md": ("tests/docs/test_examples.py", _marked)
        for name in ("http", "groups", "live", "subscriptions")
    },
    **{
        f"docs/howto/{name}.md": ("tests/docs/test_howtos.py", _followed(name))
        for name in test_howtos.PAGES
        if name != "cli"
    },
}

STARTS = "starts the server, which the tests that paste this page have"
INSTALLS = "installs packages; tests/packaging installs the wheel and its extras"
STORE = "needs an object store of Amazon; tests/history has one of its own"
SPARK = "needs a cluster of Spark; tests/spark has sessions of its own"
TABLES = "needs tables that Spark made; tests/spark/test_up.py asks for them"
POSTGRESQL = "needs a PostgreSQL of these names; tests/cluster has some of its own"
EXAMPLE = "starts an example, as tests/examples does"
DIRECTORY = "needs a data directory that is not in use, or of that name"
PROXY = "nginx itself says below whether it takes it"

# Page, how the snippet begins, why it is not executed.
SHOWN: tuple[tuple[str, str, str], ...] = (
    ("CONTRIBUTING.md", "make install-dev", "it is how tests are run at all"),
    ("CONTRIBUTING.md", "def test_the_console_lists_streams", "a pattern; tests/browser has it"),
    ("README.md", "make run", STARTS),
    ("README.md", "orders = spark.readStream", "a line of docs/howto/spark.md, which is executed"),
    ("README.md", "headwater sql", "starts Spark and needs PostgreSQL; the query is executed"),
    ("docs/benchmarks.md", "make bench", "takes half an hour"),
    ("docs/howto/browser.md", "server {", PROXY),
    ("docs/howto/cluster.md", "pip install", INSTALLS),
    ("docs/howto/cluster.md", "synchronous_standby_names", POSTGRESQL),
    ("docs/howto/cluster.md", "headwater serve", POSTGRESQL),
    ("docs/howto/cluster.md", "headwater cluster", POSTGRESQL),
    ("docs/howto/cluster.md", "headwater copy", POSTGRESQL),
    ("docs/howto/cluster.md", "headwater segments", POSTGRESQL),
    ("docs/howto/cluster.md", "synchronous_mode", "needs Patroni; make nemesis PATRONI=1 has it"),
    ("docs/howto/django.md", "python manage.py pack", "goes on for ever; tested --until-empty"),
    ("docs/howto/documents.md", "pip install", INSTALLS),
    ("docs/howto/documents.md", "npm install", INSTALLS),
    ("docs/howto/documents.md", "headwater keys", "tests/access/test_documents.py has such a key"),
    ("docs/howto/documents.md", "from pyspark", "tests/spark/test_documents.py reads documents"),
    ("docs/howto/documents.md", "headwater serve", STARTS),
    ("docs/howto/fastapi.md", "pip install", INSTALLS),
    ("docs/howto/history.md", "export AWS", STORE),
    ("docs/howto/history.md", "headwater serve", STORE),
    ("docs/howto/history.md", "headwater restore", STORE),
    ("docs/howto/history.md", "headwater segments sweep", STORE),
    ("docs/howto/history.md", "headwater segments ls", DIRECTORY),
    ("docs/howto/history.md", "headwater segments compact", DIRECTORY),
    ("docs/howto/postgres.md", "pip install", INSTALLS),
    ("docs/howto/postgres.md", "wal_level", "a setting of the PostgreSQL that tests start"),
    ("docs/howto/production.md", "headwater doctor", DIRECTORY),
    ("docs/howto/production.md", "location /v1/", PROXY),
    ("docs/howto/production.md", "scrape_configs", "needs Prometheus"),
    ("docs/howto/production.md", "groups:", "needs Prometheus; tests/observe checks its metrics"),
    ("docs/howto/production.md", "headwater backup", DIRECTORY),
    ("docs/howto/production.md", "headwater restore", DIRECTORY),
    ("docs/howto/responses.md", "headwater serve", STARTS),
    ("docs/howto/responses.md", "from fastapi", "needs a model; test_recipes has such a page"),
    ("docs/howto/spark.md", "headwater up", STARTS),
    ("docs/howto/spark.md", "headwater create visits", TABLES),
    ("docs/howto/spark.md", "headwater pipeline run archive --stream", SPARK),
    ("docs/howto/spark.md", "headwater pipeline run archive --pattern", SPARK),
    ("docs/howto/spark.md", "headwater pipeline run materialize", SPARK),
    ("docs/howto/spark.md", "export AWS", STORE),
    ("docs/howto/spark.md", "printf", SPARK),
    ("docs/howto/spark.md", "python -m venv", SPARK),
    ("docs/howto/spark.md", "spark-submit", SPARK),
    ("docs/howto/spark.md", "cd pipelines", "tests/spark runs the project of that directory"),
    ("docs/howto/spark.md", "headwater serve", STARTS),
    ("docs/howto/spark.md", "headwater pipeline ls", "needs a pipeline; tests/cli has one"),
    ("docs/howto/spark.md", "headwater pipeline pause", "needs a pipeline; tests/cli has one"),
    ("docs/howto/spark.md", "headwater pipeline reset", "needs a pipeline; tests/cli has one"),
    ("docs/reference/configuration.md", "headwater serve", STARTS),
    ("docs/reference/configuration.md", "HEADWATER_PORT", STARTS),
    ("docs/reference/responses.md", "headwater serve", STARTS),
    ("docs/reference/spark.md", "schema =", "needs bytes in Avro; tests/spark decodes some"),
    ("docs/tutorial.md", "make run", STARTS),
    ("docs/tutorial.md", "python letters.py", "starts Spark; the guide to Spark is executed"),
    ("docs/tutorial.md", "headwater read rooms/letters", "shows what letters.py wrote"),
    ("examples/chat/README.md", "python -m", EXAMPLE),
    ("examples/chat/README.md", "OPENAI_API_KEY", "needs a key for a model"),
    ("examples/editor/README.md", "pip install", EXAMPLE),
    ("examples/live_todos/README.md", "python -m", EXAMPLE),
    ("examples/orders/README.md", "python -m", EXAMPLE),
)


def is_executed(page: Path, block: Block) -> bool:
    _, executes = EXECUTED.get(name_of(page), ("", lambda _: False))
    return (
        executes(block)
        or test_sql.executes(block)
        or test_javascript.executes(page.stem, block)
        or test_editing.executes(page.stem, block)
    )


def test_every_snippet_is_executed_or_says_why_not() -> None:
    left_over = [
        (name_of(page), block.text)
        for page in PAGES
        for block in blocks_of(page)
        if not is_executed(page, block) and name_of(page) != "docs/reference/cli.md"
    ]
    unexplained = [
        f"{name}: {text.splitlines()[0]}"
        for name, text in left_over
        if not any(name == page and text.startswith(start) for page, start, _ in SHOWN)
    ]
    assert unexplained == []
    stale = [
        f"{page}: {start}"
        for page, start, _ in SHOWN
        if not any(name == page and text.startswith(start) for name, text in left_over)
    ]
    assert stale == []


def test_whoever_executes_snippets_exists() -> None:
    assert {test for test, _ in EXECUTED.values() if not (ROOT / test).is_file()} == set()
    assert {page for page in EXECUTED if not (ROOT / page).is_file()} == set()


# ── What can be told of those that are only read ─────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        if block.language == "sh":
            for words in commands.commands(block):
                commands.check(words)


def test_there_are_commands() -> None:
    found = [
        words
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "sh"
        for words in commands.commands(block)
    ]
    assert len(found) > 300


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["read", "orders", "--nonsense"],
        ["group", "rm", "orders"],
        ["append"],
        ["append", "orders", "1", "--batch", "many"],
        ["ls", "too", "many", "words"],
    ],
    ids=" ".join,
)
def test_a_command_that_does_not_exist_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r".+"):
        commands.check(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_data_can_be_read(page: Path) -> None:
    yaml: Any = importlib.import_module("yaml")
    for block in blocks_of(page):
        if block.language == "toml":
            assert set(tomllib.loads(block.text)) <= set(Settings.model_fields)
        elif block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict), block.text
        elif block.language == "python":
            compile(block.text, f"{name_of(page)}, line {block.line}", "exec", dont_inherit=True)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
@pytest.mark.parametrize("name", ["browser", "production"])
def test_nginx_takes_it(name: str, tmp_path: Path) -> None:
    (text,) = [b.text for b in Page(DOCS / "howto" / f"{name}.md").blocks if b.language == "nginx"]
    signed = Authority(tmp_path).issue()
    text = re.sub(r"/etc/ssl/\S+\.pem", str(signed.chain), text)
    text = re.sub(r"/etc/ssl/\S+\.key", str(signed.key), text)
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < (1, 25, 1):
        # What the comment beside it says.
        text = re.sub(r"http2 on;.*", "", text).replace("443 ssl;", "443 ssl http2;")
    server = text if text.startswith("server") else f"server {{ listen 127.0.0.1:80;\n{text}}}"
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{server}}}\n"
    )
    ran = subprocess.run(
        ["nginx", "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
