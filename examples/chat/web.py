"""The application's own server: a page, and what it cannot do by itself.

The page reads chats and answers from the stream server. What needs the key of the model happens
here: to ask, and to ask again.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from examples import local
from examples.chat.chats import Chats
from headwater.client import HeadwaterError

PAGE: Final = Path(__file__).parent / "page.html"
_CHAT: Final = re.compile(r"[a-z0-9-]{1,64}")


class Handler(local.Handler):
    def __init__(self, chats: Chats, streams_url: str, *args: Any) -> None:
        self._chats = chats
        self._streams_url = streams_url
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/":
            self.send(HTTPStatus.NOT_FOUND)
            return
        page = PAGE.read_text(encoding="utf-8")
        self.send_page(page.replace("{{streams}}", self._streams_url))

    def do_POST(self) -> None:
        try:
            body = self.read_json()
            self.send_json(self._act(self.path, str(body["chat"]), body))
        except (ValueError, KeyError, TypeError) as error:
            self.refuse(error)
        except HeadwaterError as error:
            self.send(HTTPStatus.BAD_GATEWAY, str(error).encode())

    def _act(self, path: str, chat: str, body: Any) -> Any:
        if _CHAT.fullmatch(chat) is None:
            raise ValueError("a chat is called by letters, digits and dashes")
        match path:
            case "/open":
                self._chats.open(chat)
            case "/ask":
                self._chats.ask(chat, str(body["text"]))
            case "/retry":
                return {"chat": self._chats.retry(chat)}
            case _:
                raise ValueError("there is no such action")
        return {"chat": chat}
