"""Chats as streams.

A chat is a stream of messages: what people wrote, and for each answer of the model the address of a
durable response. The answer itself is nowhere else. To try again is to fork the chat right after
the question: the fork has everything before it, and gets an answer of its own.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from headwater.client import Headwater, ResponseIncomplete, Stream

_KEPT_S: Final = 24 * 3600


class Chats:
    def __init__(self, client: Headwater, model_url: str, model: str, key: str = "") -> None:
        self._client = client
        self._endpoint = f"{model_url.rstrip('/')}/chat/completions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def open(self, chat: str) -> None:
        self._stream(chat).ensure(content_type="application/json", ttl_s=_KEPT_S)

    def ask(self, chat: str, text: str) -> None:
        """Put a question and have it answered, by whoever reads along."""
        self.open(chat)
        receipt = self._stream(chat).append({"role": "user", "content": text})
        self._answer(chat, receipt.next_offset or "")

    def retry(self, chat: str) -> str:
        """Another answer to the last question, in a fork of the chat."""
        answers = [m for m in self._messages(chat) if m["role"] == "assistant"]
        if not answers:
            raise ValueError("there is no answer yet")
        fork, asked_at = f"{chat}-{secrets.token_hex(2)}", answers[-1]["asked_at"]
        self._stream(chat).fork(f"chats/{fork}", offset=asked_at)
        self._answer(fork, asked_at)
        return fork

    def _answer(self, chat: str, asked_at: str) -> None:
        answer = self._client.durable_request(
            self._endpoint,
            headers=self._headers,
            json={"model": self._model, "stream": True, "messages": self._history(chat)},
        )
        message = {"role": "assistant", "answer": answer.url, "asked_at": asked_at}
        self._stream(chat).append(message)

    def _history(self, chat: str) -> list[dict[str, str]]:
        """What has been said, as the model wants it."""
        return [
            {"role": m["role"], "content": m.get("content") or self._said(m["answer"])}
            for m in self._messages(chat)
        ]

    def _said(self, address: str) -> str:
        try:
            return text_of(self._client.durable_response(address).read())
        except ResponseIncomplete as partly:
            return text_of(partly.body)

    def _messages(self, chat: str) -> list[dict[str, Any]]:
        return list(self._stream(chat).read().messages())

    def _stream(self, chat: str) -> Stream:
        return self._client.stream(f"chats/{chat}")


def text_of(events: bytes) -> str:
    """The words of an answer, out of the events that it came in."""
    said = ""
    for line in events.decode(errors="replace").splitlines():
        data = line.removeprefix("data:").strip()
        if data and line.startswith("data:") and data != "[DONE]":
            choices = json.loads(data).get("choices") or [{}]
            said += choices[0].get("delta", {}).get("content") or ""
    return said
