"""An AI chat whose answers survive a reload.

Starts a Headwater server, a model that knows nothing, and a page. With `--model-url` it talks to
any model with the API of OpenAI instead; its key is taken from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from examples.chat.chats import Chats
from examples.chat.model import model_server
from examples.chat.web import Handler
from examples.local import free_port, stream_server, web_server
from headwater.client import Headwater


def proxying(model_url: str) -> list[str]:
    """What lets a stream server fetch from the model."""
    model = urlsplit(model_url)
    return ["--proxy-allow", f"{model.scheme}://{model.netloc}{model.path.rstrip('/')}/*"]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.chat", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where to serve the page (8000)")
    parser.add_argument("--data", type=Path, help="where to keep chats; else they are not kept")
    parser.add_argument("--model-url", help="an API like https://api.openai.com/v1")
    parser.add_argument("--model", default="gpt-5-mini", help="the name of the model there")
    parser.add_argument("--pace", type=float, default=0.15, help="seconds a word of our own takes")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so long; 0: never")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    pause = partial(time.sleep, chosen.pace)
    key = os.environ.get("OPENAI_API_KEY", "") if chosen.model_url else ""
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        data = chosen.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chat-")))
        model_url = chosen.model_url or stack.enter_context(model_server(pause))[0]
        port = chosen.port or free_port()
        options = ["--data", str(data), *proxying(model_url)]
        streams = stack.enter_context(stream_server("serve", *options, page_port=port))
        client = stack.enter_context(Headwater(streams))
        chats = Chats(client, model_url, chosen.model, key)
        chats.open("hello")
        page = stack.enter_context(web_server(partial(Handler, chats, streams), port))
        print(f"Open {page}, ask something, and reload in the middle of the answer.", flush=True)
        Event().wait(chosen.seconds or None)
