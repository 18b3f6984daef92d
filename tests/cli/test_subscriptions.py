"""headwater subscription create, ls, info, rm."""

from __future__ import annotations

import pytest

from headwater.client import Headwater
from tests.cli.conftest import Run

HOOK = "http://127.0.0.1:9/hook"


def name_of(path: str) -> str:
    return path.replace("/", "-")


def test_a_subscription_from_beginning_to_end(run: Run, path: str, base_url: str) -> None:
    name = name_of(path)
    record = run(
        *("subscription", "create", name, f"{path}/*", "--wake-stream", f"{path}-wakes"),
        *("--stream", f"{path}/named", "--lease", "2.5", "--description", "for tests", "--json"),
    ).record
    assert (record["name"], record["type"], record["lease_s"]) == (name, "pull-wake", 2.5)
    assert run("subscription", "ls", "--prefix", name).lines == [name]
    with Headwater(base_url) as client:
        client.stream(f"{path}/new").create(content_type="application/json", data=1)
    info = run("subscription", "info", name, "--json").record
    links = {link["name"]: link for link in info["streams"]}
    assert links[f"{path}/new"]["pending"]
    assert links[f"{path}/named"]["explicit"]
    (listed,) = run("subscription", "ls", "--prefix", name, "--json").records
    assert (listed["streams"], listed["streams_pending"]) == ([], 1)
    lines = run("subscription", "info", name).lines
    assert f"* {path}/new  -1" in lines
    assert run("subscription", "rm", name, "--yes", "--json").record == {
        "name": name,
        "removed": True,
    }
    assert "subscription ls" in run("subscription", "info", name, code=3).err
    run("subscription", "rm", name, "--yes", code=3)


def test_the_same_again_is_fine_and_something_else_a_conflict(run: Run, path: str) -> None:
    name = name_of(path)
    run("subscription", "create", name, path, "--webhook", HOOK)
    run("subscription", "create", name, path, "--webhook", HOOK)
    refused = run("subscription", "create", name, f"{path}/*", "--webhook", HOOK, code=4)
    assert "other settings" in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("x/*",),
        ("x/*", "--webhook", HOOK, "--wake-stream", "w"),
        ("--webhook", HOOK),
        ("x/*", "--webhook", HOOK, "--lease", "long"),
    ],
)
def test_what_makes_no_sense(run: Run, path: str, arguments: tuple[str, ...]) -> None:
    run("subscription", "create", name_of(path), *arguments, code=2)


def test_a_webhook_that_is_refused(run: Run, path: str) -> None:
    unsafe = ("--webhook", "http://10.0.0.1/")
    refused = run("subscription", "create", name_of(path), path, *unsafe, code=1)
    assert "https" in refused.err


def test_removal_asks(run: Run, path: str) -> None:
    name = name_of(path)
    run("subscription", "create", name, path, "--webhook", HOOK)
    assert "--yes" in run("subscription", "rm", name, code=2).err
    run("subscription", "info", name)
