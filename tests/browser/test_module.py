"""The browser module in node: a real server, a failing network, and the server's own keys."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from headwater import __version__
from headwater.client.live_keys import keyset
from headwater.core.offsets import format_offset
from headwater.core.state_protocol import Fold, NotARecord, convert_record, is_before
from tests.core.test_state_protocol import INVALID, VALID
from tests.docs.markdown import DOCS, ROOT, Page
from tests.support import node_packages
from tests.support.server import ServerProcess

HERE = Path(__file__).parent
MODULE = ROOT / "src" / "headwater" / "http" / "js"
NODE_TESTS = sorted((HERE / "node").glob("*.test.mjs"))
VECTORS = ROOT / "tests" / "live" / "live_keys.json"
TIMEOUT_S = 300


@pytest.fixture(scope="session")
def packages() -> Path:
    return node_packages.install(HERE, needed_by="tests of the browser module")


def run(*command: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if "NODE_TEST" not in name}
        | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}", False)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("file", NODE_TESTS, ids=lambda file: file.name.split(".")[0])
def test_in_node(file: Path, packages: Path, tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(json.dumps({"cases": list(key_cases())}))
    (tmp_path / "folds.json").write_text(json.dumps([fold_case(seed) for seed in range(300)]))
    env = {
        "HEADWATER_PYTHON": sys.executable,
        "FOLD_CASES": str(tmp_path / "folds.json"),
        "LIVE_KEY_CASES": str(tmp_path / "cases.json"),
        "LIVE_KEY_VECTORS": str(VECTORS),
    }
    output = run("node", "--test", "--test-reporter=tap", str(file), env=env)
    assert re.search(r"^# pass [1-9]", output, re.MULTILINE), output


def test_types(packages: Path) -> None:
    run(str(packages / ".bin" / "tsc"), "-p", str(HERE))


def key_cases() -> Any:
    """Queries and their keys, as the Python client has them."""
    values: list[Any] = ["", "t1", "ü€😀", 0, -42, 2**53 - 1, True, False, None, 1.5, "x" * 300]
    encodings: list[Any] = [
        ("2026-03-23T10:30:00.1239+02:00", "datetime"),
        ("2026-03-23 08:30", "datetime"),
        ("2026-03-23", "datetime"),
        ("2026-02-30", "datetime"),
        ("0001-01-01T00:00:00+01:00", "datetime"),
        ("0099-12-31T23:59:59,5Z", "datetime"),
        ("2026-03-23T25:00", "datetime"),
        ("9223372036854775807", "int64"),
        ("9223372036854775808", "int64"),
        ("007", "int64"),
        ("seven", "int64"),
        (True, "string"),
        (7, "string"),
        ("1", "bool"),
        ("AP8=", "bytes"),
    ]
    shapes: list[Any] = [{}, {"project": ["title", "z"]}, {"membershipOnly": True}]
    for entity in ("public.todos", "public.événements"):
        for options in shapes:
            for value in values:
                for where in ({"f": value}, {"b": value, "a": "x", "B": 1}, {}):
                    yield key_case(entity, where, options)
            for value, encoding in encodings:
                yield key_case(entity, {"f": value}, {**options, "encodings": {"f": encoding}})
    yield key_case("t", {"a": 1, "b": 1, "c": 1, "d": 1}, {})
    # Sorted by UTF-16 code unit, an astral character comes before U+FFFF.
    yield key_case("t", {"\uffff": 1, "😀": 1}, {})


def key_case(entity: str, where: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    found = keyset(
        entity,
        where,
        project=options.get("project"),
        membership_only=options.get("membershipOnly", False),
        encodings=options.get("encodings"),
    )
    template = None if found.template is None else found.template.id
    return {
        "entity": entity,
        "where": where,
        "options": options,
        "keys": found.keys,
        "template": template,
    }


def fold_case(seed: int) -> dict[str, Any]:
    """Batches of messages, and what the rules of the core make of them."""
    chosen = Random(seed)
    fold = Fold()
    batches: list[Any] = []
    for end in range(chosen.randrange(1, 12)):
        messages = [some_message(chosen) for _ in range(chosen.randrange(6))]
        offset = format_offset(1, 10 * end)
        batches.append({"messages": messages, "offset": offset})
        if fold.restart == offset or is_before(offset, fold.restart):
            continue
        for message in messages:
            with suppress(NotARecord):
                fold.apply(convert_record(message))
    entities = {type: of_type for type, of_type in fold.entities.items() if of_type}
    return {"batches": batches, "entities": entities}


def some_message(chosen: Random) -> Any:
    if chosen.random() < 0.2:
        return chosen.choice([*VALID, *INVALID])
    if chosen.random() < 0.2:
        offset = chosen.choice([None, 5, "", "~", "z" * 33, format_offset(1, chosen.randrange(90))])
        control = chosen.choice(["snapshot-start", "snapshot-end", "snapshot-end", "reset"])
        return {"headers": {"control": control, "offset": offset}}
    operation = chosen.choice(["insert", "update", "upsert", "delete"])
    change = {"type": chosen.choice("ab"), "key": chosen.choice(["1", "2", "__proto__"])}
    value: dict[str, Any] = (
        {} if operation == "delete" else {"value": chosen.choice([None, 0, {"x": []}])}
    )
    return {**change, **value, "headers": {"operation": operation}}


# ── Served ───────────────────────────────────────────────────────────────────────────────────


def test_it_is_served_with_tags_and_for_good_by_version(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        listed = client.get("/js/").text.split()
        assert f"/js/{__version__}/headwater.js" in listed
        assert f"/js/{__version__}/headwater.d.ts" in listed
        for path in listed:
            name = path.rpartition("/")[2]
            content = (MODULE / name).read_bytes()
            for address, cached in ((path, "immutable"), (f"/js/{name}", "no-cache")):
                answer = client.get(address)
                assert answer.status_code == 200
                assert answer.content == content
                assert answer.headers["Content-Encoding"] in ("gzip", "br", "zstd", "deflate")
                assert cached in answer.headers["Cache-Control"]
                again = client.get(address, headers={"If-None-Match": answer.headers["ETag"]})
                assert again.status_code == 304
                assert not again.content
            plain = client.get(path, headers={"Accept-Encoding": "identity"})
            assert "Content-Encoding" not in plain.headers
        types = client.get("/js/headwater.js").headers["Content-Type"]
        assert types.startswith("text/javascript")
        for nothing in ("/js/nothing.js", "/js/0.0.1/headwater.js", "/js/resource.py", "/js/../x"):
            assert client.get(nothing).status_code == 404


def test_a_module_imports_nothing_but_its_own_parts() -> None:
    for part in MODULE.glob("*.js"):
        for imported in re.findall(r'(?:from|import\() ?"([^"]+)"', part.read_text()):
            assert (
                (MODULE / imported).is_file()
                or "example" in imported
                or imported.startswith("/js/")
            )


# ── Packed ───────────────────────────────────────────────────────────────────────────────────


def test_it_packs_as_an_npm_package(packages: Path, tmp_path: Path) -> None:
    about = json.loads((MODULE / "package.json").read_text())
    assert about["version"] == __version__
    run("npm", "pack", "--silent", "--pack-destination", str(tmp_path), cwd=MODULE)
    [archive] = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    expected = {part.name for part in MODULE.iterdir() if part.suffix in (".js", ".ts", ".json")}
    assert names == expected


def test_sizes_are_as_the_reference_says() -> None:
    parts = [part for part in files("headwater.http.js").iterdir() if part.name.endswith(".js")]
    raw = sum(len(part.read_bytes()) for part in parts)
    packed = sum(len(gzip.compress(part.read_bytes(), 6)) for part in parts)
    text = Page(DOCS / "reference" / "javascript.md").text
    said = re.search(r"(\d+) files, about (\d+) KB, (\d+) KB with gzip", text)
    assert said is not None
    count, raw_kb, packed_kb = map(int, said.groups())
    assert count == len(parts)
    assert abs(raw_kb - raw / 1000) <= 2, raw
    assert abs(packed_kb - packed / 1000) <= 1.5, packed
