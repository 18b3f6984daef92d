"""Those who edit documents of a cluster while it is disturbed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import httpx

from tests.cluster.crew import Desk
from tests.cluster.history import Edited
from tests.documents.editing import ROOT
from tests.documents.editor import Editor

EDITORS: Final = 3
_DOCUMENT: Final = "disturbed"
_REST_S: Final = 0.1


class Editors:
    """Several who have one document open."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._http = httpx.AsyncClient(timeout=60, trust_env=False)
        self._urls = [f"http://127.0.0.1:{port}{ROOT}/{_DOCUMENT}" for port in desk.ports]
        self._editors = [self._editor() for _ in range(EDITORS)]

    def _editor(self) -> Editor:
        return Editor(self._http, self._urls, Random(self._desk.rng.random()))

    async def prepare(self) -> None:
        answer = await self._editors[0].request("PUT", "")
        assert answer.status_code in (200, 201), answer.text

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for editor in self._editors:
                tasks.create_task(self._edit(editor))

    async def _edit(self, editor: Editor) -> None:
        while not self._desk.is_over:
            await editor.step()
            await asyncio.sleep(_REST_S)

    async def conclude(self) -> None:
        """When everything works again: all have sent all, and read to the end; and one joins."""
        for editor in self._editors:
            await editor.catch_up()
        joined = self._editor()
        await joined.reload()
        everyone = [*self._editors, joined]
        for editor in everyone:
            await editor.catch_up()
        self._desk.history.edited[_DOCUMENT] = Edited(
            written={k: v for editor in self._editors for k, v in editor.written.items()},
            states=[editor.state for editor in everyone],
            shown=[editor.shown for editor in everyone],
        )
        await self._http.aclose()
