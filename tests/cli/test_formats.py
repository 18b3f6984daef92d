"""read and tail: --format, --grep, --since, --until, --timestamps, and colours."""

from __future__ import annotations

import base64
import csv
import io
import re
import select
import time

import msgspec
import pytest

from headwater.cli.read.formats import Item, make_format
from headwater.cli.units import Unit
from headwater.client import Headwater, Position
from tests.cli.conftest import Run, Spawn
from tests.cli.plain_server import plain_server
from tests.cli.terminal import on_terminal

MESSAGES = ['{"key": "a", "n": 1}', '{"key": "b", "n": 22}', '"tea, please"', "[1, 2]", "null"]


@pytest.fixture
def orders(client: Headwater, json_stream: str) -> str:
    """Two appends of messages of all kinds."""
    stream = client.stream(json_stream)
    stream.append_all([msgspec.Raw(one.encode()) for one in MESSAGES[:2]])
    stream.append_all([msgspec.Raw(one.encode()) for one in MESSAGES[2:]])
    return json_stream


@pytest.fixture
def lines(client: Headwater, path: str) -> str:
    stream = client.stream(f"{path}/lines")
    stream.create(content_type="text/plain")
    for piece in ("one\ntw", "o\nthree\r\n", "last"):
        stream.append(piece)
    return stream.path


def now() -> str:
    ms = int(time.time() * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03}Z"


# ── Templates and names ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "template, expected",
    [
        ("%s\\n", "".join(f"{one}\n" for one in MESSAGES)),
        ("%k;", "a;b;;;;"),
        ("%S,", "".join(f"{len(one)}," for one in MESSAGES)),
        ("100%%\\t\\x41\\\\\\r\\0", "100%\tA\\\r\0" * 5),
        ("é%k", "éaébééé"),
    ],
)
def test_a_template_is_written_for_every_message(
    run: Run, orders: str, template: str, expected: str
) -> None:
    assert run("read", orders, "--format", template).out.replace("\r\n", "\n") == expected


def test_a_template_has_what_the_server_knows(
    run: Run, client: Headwater, json_stream: str
) -> None:
    before = int(time.time() * 1000) - 5_000
    client.stream(json_stream).append({"n": 1}, id="order-1")
    offset = run("read", json_stream, "--details").record["offset"]
    out = run("read", json_stream, "--format", "%t|%o|%i|%T|%d\\n").out
    stream, place, id_, ms, moment = out.strip().split("|")
    assert (stream, place, id_) == (json_stream, offset, "order-1")
    assert before < int(ms) < before + 60_000
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)


def test_lines_of_text_have_the_time_and_place_where_they_begin(run: Run, lines: str) -> None:
    first, second, third = (one["offset"] for one in run("read", lines, "--details").records)
    shown = run("read", lines, "--format", "%o %s\\n").lines
    assert shown == [f"{first} one", f"{first} two", f"{second} three", f"{third} last"]
    assert [one[25:] for one in run("read", lines, "-t").lines] == ["one", "two", "three", "last"]
    assert [one[25:] for one in run("read", lines, "-t", "-n", "2").lines] == ["one", "two"]
    assert [one[25:] for one in run("tail", lines, "-t", "--no-follow", "-n", "2").lines] == [
        "three",
        "last",
    ]


def test_pretty_is_laid_out(run: Run, orders: str, lines: str) -> None:
    out = run("read", orders, "--format", "pretty", "-n", "1").out
    assert out == '{\n  "key": "a",\n  "n": 1\n}\n'
    assert run("read", lines, "--format", "pretty").lines == ["one", "two", "three", "last"]


def test_csv_is_a_table(run: Run, orders: str, client: Headwater, path: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run("read", orders, "--format", "csv").out)))
    assert [row["value"] for row in rows] == MESSAGES
    assert [row["key"] for row in rows] == ["a", "b", "", "", ""]
    assert [row["index"] for row in rows] == ["0", "1", "0", "1", "2"]
    picture = client.stream(f"{path}/picture")
    picture.create(content_type="image/png")
    picture.append(b"\x00\xff")
    (row,) = csv.DictReader(io.StringIO(run("read", picture.path, "--format", "csv").out))
    assert base64.b64decode(row["value"]) == b"\x00\xff"


def test_json_and_details_are_short_for_formats(run: Run, orders: str) -> None:
    assert run("read", orders, "--format", "json").out == run("read", orders, "--json").out
    assert run("read", orders, "--format", "details").out == run("read", orders, "--details").out
    assert run("read", orders, "--details", "--json").out == run("read", orders, "--details").out
    assert (
        run("tail", orders, "--details", "--no-follow").out == run("read", orders, "--details").out
    )


# ── What, and from when to when ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "grep, found", [("tea", [2]), ("/^n/", [4]), ("/TEA|22/i", [1, 2]), ("/x", []), ('"n"', [0, 1])]
)
def test_grep(run: Run, orders: str, grep: str, found: list[int]) -> None:
    expected = [MESSAGES[number] for number in found]
    assert run("read", orders, "--grep", grep).lines == expected
    assert run("tail", orders, "--no-follow", "--grep", grep).lines == expected
    records = run("read", orders, "--grep", grep, "--json").records
    assert [one["value"] for one in records] == [msgspec.json.decode(one) for one in expected]
    assert run("read", orders, "--grep", grep, "--format", "%o\\t%s\\n").out.count("\n") == len(
        found
    )


def test_grep_of_lines_counts_what_it_finds(run: Run, lines: str) -> None:
    assert run("read", lines, "--grep", "t").lines == ["two", "three", "last"]
    assert run("read", lines, "--grep", "t", "-n", "2").lines == ["two", "three"]
    # It goes on after what was found.
    position = run("read", lines, "--grep", "three", "--json").record["next"]
    assert run("read", lines, "--from", position).out == "last"


def test_since_and_until(run: Run, client: Headwater, json_stream: str) -> None:
    stream, moments = client.stream(json_stream), [now()]
    for number in range(3):
        time.sleep(0.02)
        stream.append(number)
        time.sleep(0.02)
        moments.append(now())
    offset = run("read", json_stream, "--details").records[1]["offset"]
    assert run("read", json_stream, "--since", moments[1]).lines == ["1", "2"]
    assert run("read", json_stream, "--until", moments[1]).lines == ["0"]
    assert run("read", json_stream, "--since", moments[1], "--until", moments[2]).lines == ["1"]
    swapped = ("--since", moments[2], "--until", moments[1])
    assert "swap them" in run("read", json_stream, *swapped, code=2).err
    assert run("read", json_stream, "--until", offset).lines == ["0"]
    assert run("read", json_stream, "--since", "10m").lines == ["0", "1", "2"]
    assert run("read", json_stream, "--until", "10m").lines == []
    assert run("tail", json_stream, "--since", "@1h", "--no-follow").lines == ["0", "1", "2"]
    assert run("read", json_stream, "--until", "2999-01-01T00:00:00Z", "-n", "2").lines == [
        "0",
        "1",
    ]


def test_until_of_bytes_is_the_bytes(run: Run, client: Headwater, bytes_stream: str) -> None:
    stream = client.stream(bytes_stream)
    stream.append(b"12345")
    offset = stream.head().next_offset
    stream.append(b"67890")
    assert offset is not None
    assert run("read", bytes_stream, "--until", offset).out == "12345"
    assert run("read", bytes_stream, "--until", offset, "--from", "start/3").out == "45"


def test_a_read_in_bulk_takes_many_answers(run: Run, client: Headwater, text_stream: str) -> None:
    stream = client.stream(text_stream)
    for _ in range(5):
        stream.append(("x" * 999 + "\n") * 700)
    shown = run("read", text_stream, "--format", "%S\\n").lines
    assert shown == ["999"] * 3_500
    assert run("read", text_stream, "--format", "%S\\n", "--from", "start/3499000").lines == ["999"]
    assert run("read", text_stream, "--format", "%S\\n", "-n", "3").lines == ["999"] * 3


def test_following_in_a_format_ends_with_the_stream(
    spawn: Spawn, client: Headwater, json_stream: str
) -> None:
    process = spawn("tail", json_stream, "--format", "%s;%T\\n")
    client.stream(json_stream).append({"n": 1})
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"n":1};')
    client.stream(json_stream).append(2)
    assert process.stdout.readline().startswith(b"2;")
    client.stream(json_stream).close()
    assert process.wait(60) == 0


def test_another_server_has_no_times(run: Run, base_url: str, orders: str) -> None:
    with plain_server(base_url) as url:
        error = run("read", orders, "-t", STREAM_URL=url, code=1).err
        assert "does not tell times" in error
        assert run("read", orders, "--grep", "tea", STREAM_URL=url).lines == [MESSAGES[2]]


# ── Nonsense ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options, words",
    [
        (["--format", "xml"], "not a format"),
        (["--format", "%z"], "%z means nothing"),
        (["--format", "%"], "means nothing"),
        (["--format", "%s\\q"], "not an escape"),
        (["--format", ""], "not a format"),
        (["--format", "json", "--json"], "one of"),
        (["--timestamps", "--json"], "one of"),
        (["--grep", ""], "needs text"),
        (["--grep", "/(/"], "not a regular expression"),
        (["--grep", "/a/x"], "/x means nothing"),
        (["--since", "yesterday"], "not a time"),
        (["--since", "2026-01-31T12:00:00"], "with its zone"),
        (["--since", "1h", "--from", "start"], "not both"),
        (["--until", "soon"], "not a time"),
        (["--until", ""], "not a time"),
        (["--until", "1h", "--follow"], "not both"),
    ],
)
def test_nonsense_is_refused_before_a_server_is_asked(
    run: Run, options: list[str], words: str
) -> None:
    error = run("read", "any", *options, STREAM_URL="http://127.0.0.1:1", code=2).err
    assert words in error


def test_bytes_have_neither_messages_nor_lines(run: Run, bytes_stream: str) -> None:
    assert "--grep looks at" in run("read", bytes_stream, "--grep", "x", code=2).err
    assert "counts messages" in run("read", bytes_stream, "-t", "-n", "1", code=2).err


# ── Colours ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def colourful(process_environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in process_environment.items() if name != "NO_COLOR"}


def test_json_has_colours_on_a_terminal_only(
    colourful: dict[str, str], process_environment: dict[str, str], run: Run, orders: str
) -> None:
    with on_terminal("read", orders, "-n", "1", env=colourful) as terminal:
        assert terminal.end() == 0
    assert b'\x1b[34;1m"key"\x1b[0m: \x1b[32m"a"\x1b[0m' in terminal.written
    with on_terminal("read", orders, "-n", "1", env=process_environment) as terminal:
        assert terminal.end() == 0
    assert MESSAGES[0].encode() in terminal.written
    assert b"\x1b" not in run("read", orders, NO_COLOR=None).out.encode()


def test_colours_change_nothing_but_what_a_terminal_would_obey() -> None:
    format = make_format("lines", Unit.MESSAGE, "s", colours=True)
    assert format.render is not None
    text = '{"a\\"b": [1.50, -2e+9, true, null, "x: 1", "\x7f\u009b31m é"], "n": {}}'
    shown = format.render(Item(text.encode(), Position("now"))).decode()
    bare = re.sub("\x1b\\[[0-9;]*m", "", shown)
    assert msgspec.json.decode(bare) == msgspec.json.decode(text)
    assert "1.50" in bare
    assert "\u009b" not in shown
    assert "\x7f" not in shown


# ── Several streams ──────────────────────────────────────────────────────────────────────────


def test_several_streams_are_followed_at_once(
    spawn: Spawn, run: Run, client: Headwater, path: str
) -> None:
    one, two = client.stream(f"{path}/one"), client.stream(f"{path}/two")
    one.create()
    two.create(content_type="text/plain")
    one.append(1)
    two.append("a\nb\n")
    shown = run("tail", one.path, two.path, "--no-follow").lines
    assert sorted(shown) == [f"{one.path}\t1", f"{two.path}\ta", f"{two.path}\tb"]
    process = spawn("tail", one.path, two.path, "-n", "0", "--format", "%t %s\\n")
    assert process.stdout is not None
    seen: set[bytes] = set()
    with Headwater(client.url.removesuffix("/v1/stream")) as writer:
        number = 0
        # It says nothing when it begins, so write until both have been seen.
        while len({line.split()[0] for line in seen}) < 2:
            number += 1
            for stream in (writer.stream(one.path), writer.stream(two.path)):
                stream.append(number if stream.path == one.path else f"{number}\n")
            if select.select([process.stdout], [], [], 0.2)[0]:
                seen.add(process.stdout.readline())
    one.close()
    two.close()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_what_several_streams_cannot_have(run: Run, json_stream: str, path: str) -> None:
    run("create", f"{path}/b")
    pair = (json_stream, f"{path}/b")
    assert "as lines" in run("tail", *pair, "--json", code=2).err
    assert "with several streams" in run("tail", *pair, "--format", "%T", code=2).err
    assert "twice" in run("tail", json_stream, json_stream, code=2).err
    assert "no stream" in run("tail", json_stream, f"{path}/no", code=3).err
