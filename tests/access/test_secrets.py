"""Nothing that was handed out in confidence is seen anywhere else."""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from headwater.cli.target import Target
from headwater.client import Headwater, HeadwaterError, RetryPolicy
from headwater.client.protocol.streams import Request as ClientRequest
from headwater.contexts import Context, authorization
from headwater.core.access.keys import KeyRecord
from headwater.settings import Settings
from tests.access.guests import SECRETS, Guest, House, secret
from tests.access.test_keys import presign
from tests.cli.conftest import Run, config_file, environment, run
from tests.http.client import eventually
from tests.http.wire import Wire, request_bytes

__all__ = ["base_url", "config_file", "environment", "run"]


@pytest.fixture
def base_url(own_house: House) -> str:
    return own_house.server.url


def found_in(text: str) -> list[str]:
    """Which secrets a text gives away, whole or in part."""
    parts = {part for value in SECRETS for part in (value, value.rpartition(".")[2], value[-20:])}
    return [part for part in parts if len(part) >= 8 and part in text]


def test_the_search_finds_what_it_should() -> None:
    value = secret("header.payload.a-signature-of-a-token")
    assert found_in(f"x {value} y")
    assert found_in("x a-signature-of-a-token y")


def answers_to_everything(house: House, guest: Guest, url: str) -> str:
    """What the server says to good, bad and strange requests of someone with a secret."""
    said = ""
    signature = urlsplit(url).query
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"):
        for target in (
            "/v1/stream/a",
            f"/v1/stream/a?{signature}",
            f"/v1/stream/a?{signature}x&offset=bad",
            f"/v1/stream/missing?{signature}",
            f"/nowhere?{signature}",
            "/v1/stream/a/_groups/g/fetch",
            "/v1/transaction",
            "/v1/stream/a%zz",
        ):
            for headers in (None, {"Stream-TTL": "x"}, {"Authorization": f"Basic {guest.token}"}):
                reply = guest.send(method, target, headers, b"{broken")
                said += f"{reply.headers!r}\n{reply.body!r}\n"
    for raw in (
        request_bytes("GET", f"/v1/stream/a?{signature}", {"Authorization": f"x{guest.token}"}),
        f"GET /a?{signature} HTTP/9\r\nAuthorization: {guest.token}\r\n\r\n".encode(),
        request_bytes("GET", "/" + "a" * 20_000, guest.headers()),
    ):
        with Wire(house.server.port) as wire:
            wire.send(raw)
            wire.finish_sending()
            said += repr(wire.receive_all())
    return said


def test_answers_and_logs(own_house: House) -> None:
    house = own_house
    house.owner.put("a")
    _, guest = house.key_guest(read=["a"])
    url = presign(guest, "a")
    said = answers_to_everything(house, guest, url)
    said += answers_to_everything(house, house.owner, url)
    house.keys_file.write_text("broken " + (guest.token or ""))
    house.hurry()
    eventually(lambda: "not_reloaded" in house.server.stderr)
    assert found_in(said) == []
    assert found_in(house.server.stderr) == []


def test_debug_logs(tmp_path: Path) -> None:
    with House.open(tmp_path, "sqlite", "--log-level", "debug", "--log-format", "json") as house:
        house.owner.put("a")
        _, guest = house.key_guest(read=["a"])
        answers_to_everything(house, guest, presign(guest, "a"))
        assert found_in(house.server.stderr) == []
        files = [path for path in (tmp_path / "data").iterdir() if path.name != "signing.secret"]
        assert files
        for path in files:
            assert found_in(path.read_bytes().decode("latin-1")) == [], path


def test_the_client(own_house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Its errors, representations and what it logs."""
    caplog.set_level(logging.DEBUG)
    token = own_house.token(headwater={"read": ["a"]})
    shown: list[str] = []
    once = RetryPolicy(give_up_after_s=0)
    for url in (own_house.server.url, "http://127.0.0.1:1"):
        with Headwater(url, token=token, retry=once) as client:
            stream = client.stream("b")
            shown += [repr(client), repr(stream), repr(vars(client)), str(client)]
            for action in (stream.head, stream.read_json, stream.delete, stream.create):
                try:
                    action()
                except HeadwaterError as error:
                    shown += [repr(error), str(error), repr(vars(error))]
                    shown += traceback.format_exception(error)
    for bad in ("sécret-tokén-of-mine", "secret\nToken-of-mine", "secret token\r\nX: y-of-mine"):
        secret(bad)
        with Headwater(own_house.server.url, token=bad, retry=once) as client:
            try:
                client.stream("a").head()
            except ValueError as error:
                shown += traceback.format_exception(error)
            else:
                pytest.fail("it was sent")
    assert found_in("".join(shown)) == []
    assert "of-mine" not in "".join(shown)
    assert found_in(caplog.text) == []


def test_representations() -> None:
    value = secret("hw_0123456789ab_secret-of-a-representation")
    things = [
        Context("http://x", value),
        Target("http://x", authorization(value)),
        ClientRequest("GET", "http://x", headers={"Authorization": value}),
        Guest(1, value),
        KeyRecord.__repr__,
    ]
    assert found_in(repr(things)) == []


def test_the_command_line(run: Run, own_house: House, tmp_path: Path) -> None:
    """A key is on stdout of `keys create` and nowhere else, an address on that of `presign`."""
    token = own_house.owner.token
    assert token is not None
    keys = ("--keys-file", str(own_house.keys_file))
    key = secret(run("keys", "create", *keys, "--read", "a").out.strip())
    said = [
        run("keys", "ls", *keys),
        run("keys", "ls", *keys, "--json"),
        run("create", "a", HEADWATER_TOKEN=token),
        run("append", "a", "1", HEADWATER_TOKEN=key, code=5),
        run("info", "a", "--token", token),
        run("info", "missing", "--token", token, code=3),
        run("info", "a", "--token", key + "x", code=5),
        run("info", "a", "--token", f"{key}\x00", code=2),
        run("ctx", "add", "x", own_house.server.url, "--token", key),
        run("ctx", "ls", "--json"),
        run("info", "a", "--url", f"http://user:{key}@127.0.0.1:1", code=2),
        run("serve", "--jwt-secret", key, code=2),
    ]
    assert found_in("".join(ran.out + ran.err for ran in said)) == []
    signed = run("presign", "a", "--token", token, "--expires", "5m")
    signature = secret(parse_qs(urlsplit(signed.out.strip()).query)["signature"][0])
    assert signature not in signed.err
    assert httpx.get(signed.out.strip()).status_code == 200
    assert found_in(own_house.server.stderr) == []


def test_no_secret_is_a_setting() -> None:
    """What is on a command line is seen by everyone on the machine."""
    names = [name for name in Settings.model_fields if re.search("secret|token|password", name)]
    assert [name for name in names if not name.endswith("_file")] == []
