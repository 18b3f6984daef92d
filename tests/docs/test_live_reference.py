"""The reference for live queries has every setting, field, member and limit, as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headwater.core.live.encodings import ENCODINGS
from headwater.core.live.guard import Mode
from headwater.core.live.profile import StateProtocol
from headwater.core.live.records import MissingBeforePolicy
from headwater.core.live.templates import FIELDS_MAX, TEMPLATES_PER_CALL_MAX, Denial
from headwater.http.resources.live import (
    EXACT_KEYS_MAX,
    KEYS_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    ActivateBody,
    WaitBody,
)
from tests.docs.markdown import LIVE_REFERENCE, Page, code_spans
from tests.docs.test_http_reference import documented
from tests.http.client import JSON, Client
from tests.support.server import ServerProcess

PAGE = Page(LIVE_REFERENCE)


def names(heading: str) -> list[str]:
    return [name for row in PAGE.table(heading) for name in code_spans(row[0])]


def second_table(heading: str) -> list[str]:
    """The names in the table behind the first one of a section."""
    lines = PAGE.section(heading).splitlines()
    cells = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("|")]
    borders = [index for index, cell in enumerate(cells) if set(cell) == {"-"}]
    return [name for cell in cells[borders[1] + 1 :] for name in code_spans(cell)]


def options(literal: Any) -> tuple[str, ...]:
    return tuple(literal.__args__)


# ── Settings and requests ────────────────────────────────────────────────────────────────────


def flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{name}.")
        else:
            yield prefix + name, value


def test_every_setting_is_there_with_its_default() -> None:
    touch = msgspec.to_builtins(StateProtocol())["touch"]
    rows = {code_spans(row[0])[0]: code_spans(row[1])[0] for row in PAGE.table("Settings")}
    assert rows == {name: json.dumps(default) for name, default in flat(touch)}


def test_every_member_of_a_wait_is_there_with_its_default() -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(WaitBody)}
    rows = {code_spans(row[0])[0]: row[1] for row in PAGE.table("Wait")}
    assert list(rows) == list(fields)
    for name, default in rows.items():
        if name == "cursor":
            assert fields[name].required
            continue
        field = fields[name]
        factory = field.default_factory
        expected = field.default if factory is msgspec.NODEFAULT else factory()
        assert json.loads(default.strip("`")) == expected, name


def test_every_member_of_an_activation_is_there() -> None:
    expected = [field.encode_name for field in msgspec.structs.fields(ActivateBody)]
    assert names("Activate templates")[: len(expected)] == expected


def test_limits_are_the_ones_in_force() -> None:
    text = PAGE.text
    assert f"How long to wait, 0 to {WAIT_MS_MAX}" in text
    assert f"0 to {WAIT_MS_MAX} ({WAIT_MS_DEFAULT})" in text
    assert f"Keys, at most {KEYS_MAX}" in text
    assert f"1 to {EXACT_KEYS_MAX} keys" in text
    assert f"At most {TEMPLATES_PER_CALL_MAX}, each with an `entity` and 1 to {FIELDS_MAX}" in text


def test_every_choice_is_there() -> None:
    assert names("Encodings") == list(ENCODINGS)
    assert names("Modes") == list(options(Mode))
    assert set(options(MissingBeforePolicy)) <= set(
        code_spans(PAGE.section("What a change touches"))
    )
    assert set(options(Denial)) <= set(code_spans(PAGE.section("Activate templates")))


def test_errors_agree_with_the_http_reference() -> None:
    known = set(documented())
    for code, status, _ in PAGE.table("Errors"):
        assert (code_spans(code)[0], int(status)) in known, code


# ── Answers ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def client(server: ServerProcess) -> Client:
    client = Client(server)
    client.create(JSON, path="app.wal")
    profile = {"profile": {"kind": "state-protocol", "touch": {"enabled": True}}}
    assert client.post("app.wal/_profile", json.dumps(profile).encode(), JSON).status == 200
    return client


def answer(client: Client, name: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(f"app.wal/touch/{name}", json.dumps(body).encode(), JSON)
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_every_field_of_meta_is_there(client: Client) -> None:
    assert second_table("Meta") == list(client.json("/v1/stream/app.wal/touch/meta"))


def test_every_field_of_a_wait_is_there(client: Client) -> None:
    keys = {"keys": ["0" * 16], "timeoutMs": 0}
    quiet = answer(client, "wait", {"cursor": "now", **keys})
    stale = answer(client, "wait", {"cursor": "0123456789abcdef:0", **keys})
    assert set(second_table("Wait")) == {*quiet, *stale}


def test_every_field_of_an_activation_is_there(client: Client) -> None:
    good = {"entity": "t", "fields": [{"name": "a"}]}
    found = answer(client, "templates/activate", {"templates": [good, {}]})
    expected = [f"activated[].{name}" for name in found["activated"][0]]
    expected += [f"denied[].{name}" for name in found["denied"][0]]
    answered = [name for name in second_table("Activate templates") if "[]" in name]
    assert answered == expected
    assert set(found) == {"activated", "denied", "limits"}
