"""The chat does what its page says, in a real browser."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import httpx
import pytest

from examples.chat.app import proxying
from examples.chat.chats import Chats, text_of
from examples.chat.model import model_server, words
from examples.chat.web import Handler
from examples.local import free_port, stream_server, web_server
from headwater.client import Headwater
from tests.docs.markdown import ROOT
from tests.support.browser import Browser, Page

HANG_S = 60.0
PACE_S = 0.01


class Tempo:
    """How fast the model speaks: it can be held in the middle of an answer."""

    def __init__(self) -> None:
        self._words = 0
        self._go_on = threading.Event()
        self._go_on.set()

    def hold_after(self, words: int) -> None:
        self._words = words
        self._go_on.clear()

    def go_on(self) -> None:
        self._go_on.set()

    def __call__(self) -> None:
        time.sleep(PACE_S)
        if self._words:
            self._words -= 1
        else:
            self._go_on.wait(HANG_S)


@dataclass
class Running:
    page: str
    chats: Chats
    client: Headwater
    asked: list[str]
    tempo: Tempo


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tempo = Tempo()
    with ExitStack() as stack:
        model_url, asked = stack.enter_context(model_server(tempo))
        port = free_port()
        streams = stack.enter_context(
            stream_server(
                *("serve", "--data", str(tmp_path_factory.mktemp("chat")), *proxying(model_url)),
                page_port=port,
            )
        )
        client = stack.enter_context(Headwater(streams))
        chats = Chats(client, model_url, "fake")
        page = stack.enter_context(web_server(partial(Handler, chats, streams), port))
        yield Running(page, chats, client, asked, tempo)


def ask(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.click("#ask button")


def answer_to(question: str, attempt: int = 1) -> str:
    return "".join(words(question, attempt))


def wait_for_answer(page: Page, text: str) -> None:
    """Until the last answer is there, to the letter."""
    page.wait_for(
        "const all = [...document.querySelectorAll('.assistant:not(.arriving)')];"
        "return all.at(-1)?.textContent === args.text",
        text=text,
    )


def test_a_reload_in_the_middle_continues_and_a_second_device_sees_it(
    chat: Running, browser: Browser
) -> None:
    question = "Where does an answer go?"
    chat.tempo.hold_after(20)
    page = browser.open(f"{chat.page}#talk")
    ask(page, question)
    page.wait_for_text("That is a fine question")
    page.reload()
    page.wait_for_text("That is a fine question")
    assert page.evaluate("return document.querySelector('.arriving') !== null")
    other = browser.open(f"{chat.page}#talk")
    other.wait_for_text("That is a fine question")
    chat.tempo.go_on()
    for seen in (page, other):
        wait_for_answer(seen, answer_to(question))
        assert seen.texts(".user") == [question]
        assert seen.texts(".assistant .ended") == []
    assert chat.asked.count(question) == 1
    assert (page.errors, other.errors) == ([], [])
    page.close()
    other.close()


def test_trying_again_is_a_fork_and_leaves_the_first_answer(
    chat: Running, browser: Browser
) -> None:
    question = "Could you say that again?"
    page = browser.open(f"{chat.page}#first")
    ask(page, question)
    wait_for_answer(page, answer_to(question))
    page.click("#retry")
    page.wait_for("return location.hash.startsWith('#first-')")
    wait_for_answer(page, answer_to(question, 2))
    assert page.texts(".user") == [question]
    page.goto(f"{chat.page}#first")
    page.reload()
    wait_for_answer(page, answer_to(question))
    assert chat.asked.count(question) == 2
    assert page.errors == []
    page.close()


def test_stop_ends_the_answer_and_says_so(chat: Running, browser: Browser) -> None:
    question = "Is this going to take long?"
    chat.tempo.hold_after(5)
    page = browser.open(f"{chat.page}#short")
    ask(page, question)
    page.wait_for_text("You asked")
    page.click("#stop")
    page.wait_for("return document.querySelector('.assistant .ended')?.textContent === '— aborted'")
    chat.tempo.go_on()
    said = page.text(".assistant").removesuffix("— aborted")
    assert answer_to(question).startswith(said.rstrip())
    assert said
    page.close()


def test_the_model_is_told_what_was_said(chat: Running) -> None:
    chat.chats.ask("history", "one")
    chat.chats.ask("history", "two")
    first, answer, second, _ = chat.client.stream("chats/history").read().messages()
    assert (first["content"], second["content"]) == ("one", "two")
    body = chat.client.durable_response(answer["answer"]).read()
    assert text_of(body) == answer_to("one")
    chat.chats.open("empty")
    with pytest.raises(ValueError, match="no answer yet"):
        chat.chats.retry("empty")


@pytest.mark.parametrize(
    "path, body",
    [
        ("ask", b"nonsense"),
        ("ask", b"{}"),
        ("ask", b'{"chat": "../x", "text": "x"}'),
        ("other", b'{"chat": "x"}'),
        ("retry", b'{"chat": "empty"}'),
    ],
)
def test_nonsense_is_refused(chat: Running, path: str, body: bytes) -> None:
    chat.chats.open("empty")
    assert httpx.post(chat.page + path, content=body).status_code == 400
    assert httpx.get(chat.page + path).status_code == 404


def test_it_starts_with_one_command() -> None:
    command = [sys.executable, "-m", "examples.chat", "--port", "0", "--seconds", "0.5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Open http://127.0.0.1:")
    assert done.stderr == ""
