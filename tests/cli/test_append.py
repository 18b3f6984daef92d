"""append: arguments, lines, files, raw input, and runs that can be repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.append.job import Cuts
from headwater.client import Headwater
from tests.cli.conftest import Run


def test_a_message(run: Run, json_stream: str) -> None:
    record = run("append", json_stream, '{"n": 1}', "--json").record
    assert record.pop("next_offset") is not None
    assert record == {
        "name": json_stream,
        "messages": 1,
        "bytes": 8,
        "duplicates": 0,
        "closed": False,
    }
    assert run("read", json_stream).lines == ['{"n": 1}']


def test_an_array_is_one_message(run: Run, json_stream: str) -> None:
    run("append", json_stream, "[1, 2]")
    run("append", json_stream, stdin="[3, 4]\n[]\n")
    assert run("read", json_stream).lines == ["[1, 2]", "[3, 4]", "[]"]


def test_a_message_in_a_text_stream_is_a_line(run: Run, text_stream: str) -> None:
    run("append", text_stream, "hello")
    run("append", text_stream, "wörld")
    assert run("read", text_stream).out == "hello\nwörld\n"


def test_a_message_in_any_other_stream_is_just_that(run: Run, bytes_stream: str) -> None:
    run("append", bytes_stream, "abc")
    run("append", bytes_stream, "def")
    assert run("read", bytes_stream).out == "abcdef"


def test_every_line_is_a_message(run: Run, client: Headwater, json_stream: str) -> None:
    ran = run("append", json_stream, "--json", stdin='{"n": 1}\n\n  2 \r\n"three"')
    assert ran.record["messages"] == 3
    assert run("read", json_stream).lines == ['{"n": 1}', "2", '"three"']
    assert run("info", json_stream, "--json").record["messages"] == 3


def test_lines_of_text_keep_their_ends(run: Run, text_stream: str) -> None:
    run("append", text_stream, stdin="a\n\nb\r\nc")
    run("append", text_stream, stdin="d\n")
    assert run("read", text_stream).out == "a\n\nb\r\nc\nd\n".replace("\r\n", "\n")
    assert [r["text"] for r in run("read", text_stream, "--json").records] == [*"a", "", *"bcd"]


def test_files_are_read_in_turn(run: Run, json_stream: str, tmp_path: Path) -> None:
    for name, text in (("one", "1\n2"), ("two", "3\n")):
        (tmp_path / name).write_text(text)
    run("append", json_stream, "--file", str(tmp_path / "one"), "--file", str(tmp_path / "two"))
    assert run("read", json_stream).lines == ["1", "2", "3"]


def test_a_file_that_is_not_there(run: Run, json_stream: str, tmp_path: Path) -> None:
    assert "nothing" in run("append", json_stream, "--file", str(tmp_path / "nothing"), code=2).err


def test_raw_input_is_one_append(run: Run, client: Headwater, bytes_stream: str) -> None:
    data = b"\x00\r\n\xff" * 1000
    run("append", bytes_stream, "--raw", stdin=data)
    assert client.stream(bytes_stream).read_bytes() == data
    assert run("info", bytes_stream, "--json").record["messages"] == 1


def test_raw_json_is_split_as_the_protocol_has_it(run: Run, json_stream: str) -> None:
    assert run("append", json_stream, "--raw", "--json", stdin="[1,\n [2]]").record["messages"] == 2
    assert run("append", json_stream, "--raw", "--json", stdin="[[3]]").record["messages"] == 1
    assert run("append", json_stream, "--raw", "--json", stdin='{"n":\n4}').record["messages"] == 1
    assert run("read", json_stream).lines == ["1", "[2]", "[3]", '{"n":4}']


def test_raw_from_a_file(run: Run, text_stream: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no end of line")
    run("append", text_stream, "--raw", "--file", str(tmp_path / "file"))
    assert run("read", text_stream).out == "no end of line"


@pytest.mark.parametrize("stdin", ["", "[]", " [ ] "])
def test_nothing_raw(run: Run, json_stream: str, stdin: str) -> None:
    error = run("append", json_stream, "--raw", stdin=stdin, code=2).err
    assert "not JSON" in error or "nothing to append" in error


def test_no_lines_are_fine(run: Run, json_stream: str) -> None:
    assert run("append", json_stream, "--json", stdin="").record["messages"] == 0


@pytest.mark.parametrize("line", ["nope", "{", "1 2", "NaN", "\ufeff1", b'"\xff"'])
def test_a_line_that_is_not_json(run: Run, json_stream: str, line: str | bytes) -> None:
    text = line.encode() if isinstance(line, str) else line
    error = run("append", json_stream, stdin=b"1\n2\n" + text + b"\n4\n", code=2).err
    assert "stdin, line 3 is not JSON" in error
    assert "stored before that: 2 messages" in error
    assert run("read", json_stream).lines == ["1", "2"]


def test_an_argument_that_is_not_json(run: Run, json_stream: str) -> None:
    assert "--type text" in run("append", json_stream, "hello", code=2).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("1", "--raw"),
        ("1", "--file", __file__),
        ("--epoch", "1"),
        ("--batch", "1"),
        ("--producer", "ü", "--epoch", "0"),
        ("--producer", "p", "--epoch", "-1"),
        ("--producer", "p", "--epoch", "0", "--batch", "0"),
    ],
)
def test_what_does_not_go_together(run: Run, json_stream: str, arguments: tuple[str, ...]) -> None:
    run("append", json_stream, *arguments, stdin="1\n", code=2)
    assert run("read", json_stream).out == ""


def test_closing_with_the_last_message(run: Run, path: str) -> None:
    for name, arguments, stdin in (
        ("argument", ("3",), None),
        ("lines", (), "1\n2\n"),
        ("raw", ("--raw",), "[1, 2]"),
        ("producer", ("--producer", "p", "--epoch", "0"), "1\n"),
        ("nothing", (), ""),
    ):
        stream = f"{path}/{name}"
        run("create", stream)
        record = run("append", stream, *arguments, "--close", "--json", stdin=stdin).record
        assert record["closed"] is True
        assert run("info", stream, "--json").record["closed"] is True
        assert len(run("read", stream).lines) == record["messages"]


def test_a_closed_stream_takes_no_more(run: Run, json_stream: str) -> None:
    run("close", json_stream)
    run("append", json_stream, "1", code=4)
    run("append", json_stream, stdin="1\n", code=4)
    run("append", json_stream, "--producer", "p", "--epoch", "0", stdin="1\n", code=4)


# --- Runs that can be repeated -------------------------------------------------------------------

NUMBERS = "".join(f"{number}\n" for number in range(2_500))
FEW = "".join(f"{number}\n" for number in range(60))


@pytest.mark.parametrize("stdin, options", [(FEW, ()), (NUMBERS, ("--batch", "1000"))])
def test_the_same_run_again_stores_nothing_twice(
    run: Run, json_stream: str, stdin: str, options: tuple[str, ...]
) -> None:
    arguments = ("append", json_stream, "--producer", "import", "--epoch", "0", "--json", *options)
    count = stdin.count("\n")
    first = run(*arguments, stdin=stdin)
    assert first.record["duplicates"] == 0
    assert first.err == ""
    again = run(*arguments, stdin=stdin)
    assert again.record["duplicates"] == count
    assert again.record["next_offset"] == first.record["next_offset"]
    assert f"{count:,} messages had been stored before" in again.err
    assert "--epoch" in again.err
    assert run("read", json_stream).out == stdin


@pytest.mark.parametrize("lines", [0, 1, 37, 59])
def test_input_that_was_cut_off_or_has_grown(run: Run, json_stream: str, lines: int) -> None:
    arguments = ("append", json_stream, "--producer", "import", "--epoch", "0", "--json")
    run(*arguments, stdin="".join(FEW.splitlines(keepends=True)[:lines]))
    again = run(*arguments, stdin=FEW)
    assert again.record["duplicates"] == lines
    assert run("read", json_stream).out == FEW


def test_batches_go_on_where_an_earlier_run_was_cut_off(run: Run, json_stream: str) -> None:
    arguments = (
        "append",
        json_stream,
        "--epoch",
        "0",
        "--producer",
        "import",
        "--epoch",
        "0",
        "--batch",
        "100",
        "--json",
    )
    # What a run leaves behind that ended between two batches.
    run(*arguments, stdin="".join(f"{number}\n" for number in range(700)))
    again = run(*arguments, stdin=NUMBERS)
    assert again.record["duplicates"] == 700
    assert "1,800 are new" in again.err
    assert run("read", json_stream).out == NUMBERS


@pytest.mark.parametrize("options, stored", [((), 250), (("--batch", "100"), 200)])
def test_a_line_that_is_not_json_can_be_repaired(
    run: Run, json_stream: str, options: tuple[str, ...], stored: int
) -> None:
    lines = [f"{number}\n" for number in range(300)]
    arguments = ("append", json_stream, "--producer", "import", "--epoch", "0", *options)
    broken = "".join([*lines[:250], "nope\n", *lines[251:]])
    assert f"stored before that: {stored}" in run(*arguments, stdin=broken, code=2).err
    assert len(run("read", json_stream).lines) == stored
    run(*arguments, stdin="".join(lines))
    assert run("read", json_stream).out == "".join(lines)


def test_other_input_needs_another_epoch(run: Run, json_stream: str) -> None:
    arguments = ("append", json_stream, "--producer", "daily", "--epoch", "0")
    run(*arguments, "--epoch", "20260130", stdin="1\n")
    run(*arguments, "--epoch", "20260131", stdin="2\n")
    assert "epoch 20260131" in run(*arguments, "--epoch", "20260130", stdin="1\n", code=4).err
    assert run("read", json_stream).lines == ["1", "2"]


@pytest.mark.parametrize("arguments", [("7",), ("--raw",)])
def test_a_single_append_can_be_repeated_too(
    run: Run, json_stream: str, arguments: tuple[str, ...]
) -> None:
    for expected in (0, 1):
        ran = run(
            "append",
            json_stream,
            *arguments,
            "--epoch",
            "0",
            "--producer",
            "p",
            "--epoch",
            "0",
            "--json",
            stdin="7",
        )
        assert ran.record["duplicates"] == expected
    assert run("read", json_stream).lines == ["7"]


def test_raw_input_stays_one_append_under_a_producer(run: Run, bytes_stream: str) -> None:
    data = b"x" * (3 << 20)
    for _ in range(2):
        run("append", bytes_stream, "--raw", "--producer", "p", "--epoch", "0", stdin=data)
    details = run("info", bytes_stream, "--json").record
    assert (details["messages"], details["bytes"]) == (1, len(data))


def test_many_raw_messages_stay_one_append_under_a_producer(run: Run, json_stream: str) -> None:
    body = "[" + ",".join(map(str, range(12_000))) + "]"
    assert (
        run(
            "append", json_stream, "--raw", "--producer", "p", "--epoch", "0", "--json", stdin=body
        ).record["messages"]
        == 12_000
    )
    assert (
        run(
            "append", json_stream, "--raw", "--producer", "p", "--epoch", "0", "--json", stdin=body
        ).record["duplicates"]
        == 12_000
    )


def test_a_run_that_closed_the_stream_is_recognised(run: Run, json_stream: str) -> None:
    arguments = (
        "append",
        json_stream,
        "--epoch",
        "0",
        "--producer",
        "import",
        "--close",
        "--json",
        "--batch",
        "1000",
    )
    run(*arguments, stdin=NUMBERS)
    again = run(*arguments, stdin=NUMBERS)
    assert again.record["duplicates"] == 2_500
    assert again.record["closed"] is True
    assert run("read", json_stream).out == NUMBERS
    # Neither of these is what closed it.
    run(*arguments, stdin=NUMBERS * 2, code=4)
    run(*arguments, "--epoch", "1", stdin=NUMBERS, code=4)


def test_batches_are_cut_by_number(run: Run, text_stream: str) -> None:
    run("append", text_stream, "--producer", "p", "--epoch", "0", "--batch", "400", stdin=NUMBERS)
    # A text stream counts its appends.
    assert run("info", text_stream, "--json").record["messages"] == 7
    assert run("read", text_stream).out == NUMBERS


def test_batches_are_cut_by_size(run: Run, text_stream: str) -> None:
    sizes = [400_000, 400_000, 400_000, 1_500_000, 10, 10]
    lines = ["x" * (size - 1) + "\n" for size in sizes]
    cuts = Cuts(1_000, 1 << 20)
    assert [cuts.begins_batch(len(line)) for line in lines] == [
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    run(
        "append",
        text_stream,
        "--epoch",
        "0",
        "--producer",
        "p",
        "--epoch",
        "0",
        "--batch",
        "1000",
        stdin="".join(lines),
    )
    assert run("info", text_stream, "--json").record["messages"] == cuts.batches == 4
    assert run("read", text_stream).out == "".join(lines)


def test_cuts_at_the_exact_size() -> None:
    cuts = Cuts(10, 100)
    assert [cuts.begins_batch(size) for size in (60, 40, 1, 100, 101, 99)] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]


def test_a_producer_without_an_epoch_is_refused(run: Run, json_stream: str) -> None:
    """It would take other input for a repetition, and lose it."""
    assert "--epoch" in run("append", json_stream, "1", "--producer", "p", code=2).err
