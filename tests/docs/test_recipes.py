"""The recipes for web frameworks, saved to files and used as a reader would."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.client import AsyncHeadwater
from tests.docs.markdown import DOCS, Page
from tests.support.server import ServerProcess

HOWTO = DOCS / "howto"
PATIENCE_S = 60


def save(page: Path, directory: Path) -> None:
    for block in Page(page).blocks:
        if block.file:
            path = directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(block.text + "\n\n")


# ── FastAPI ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server with access control, whose key is in the environment."""
    data = str(tmp_path / "data")
    command = [*("keys", "create", "--name", "app", "--admin", "**"), "--data", data]
    made = subprocess.run(
        [sys.executable, "-m", "headwater", *command], capture_output=True, text=True, check=True
    )
    with ServerProcess("--data", data) as server:
        monkeypatch.setenv("STREAM_URL", server.url)
        monkeypatch.setenv("HEADWATER_TOKEN", made.stdout.strip())
        yield server


def application(directory: Path) -> Any:
    save(HOWTO / "fastapi.md", directory)
    spec = importlib.util.spec_from_file_location("recipe_app", directory / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


async def test_fastapi(guarded: ServerProcess, tmp_path: Path) -> None:
    app = application(tmp_path)
    transport = httpx.ASGITransport(app)
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as browser,
        AsyncHeadwater() as client,
    ):
        placed = await browser.post("/orders", json={"id": 1, "item": "tea"})
        assert placed.status_code == 201
        assert (await browser.post("/orders", json={"id": "tea"})).status_code == 422
        async with client.stream("web/parcels").follow() as parcels:
            assert await anext(parcels.messages()) == {"order": 1}

        signed = (await browser.get("/parcels/address")).json()["url"]
        async with httpx.AsyncClient() as anyone:
            assert (await anyone.get(f"{signed}&offset=-1")).json() == [{"order": 1}]
            plain = await anyone.get(signed.partition("?")[0])
            assert plain.status_code == 401

        answered = await browser.post("/chats/7", params={"question": "why"})
        assert answered.status_code == 201
        assert answered.json()["streamUrl"].endswith("web/chats/7")
        async with client.stream("web/chats/7").follow() as answer:
            words = [token["delta"] async for token in answer.messages()]
        assert words == ["You", "asked:", "why"]


# ── Django ───────────────────────────────────────────────────────────────────────────────────

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "site_settings"
SECRET_KEY = "for-this-test"

def __getattr__(name):
    if name != "urlpatterns":
        raise AttributeError(name)
    from django.urls import path
    from shop.views import place
    return [path("orders", place)]
"""
ORDERING = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
import django
django.setup()
from django.db import transaction
from django.test import Client
assert Client().post("/orders", {"item": "tea"}).status_code == 201
try:
    with transaction.atomic():
        Client().post("/orders", {"item": "never"})
        raise RuntimeError
except RuntimeError:
    pass
from shop.streams import orders
print([order["item"] for order in orders().read_json()])
"""


def test_django(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback publishes nothing, and the command packs each order once."""
    save(HOWTO / "django.md", tmp_path)
    for package in (tmp_path / "shop").rglob("*"):
        if package.is_dir():
            (package / "__init__.py").touch()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "manage.py").write_text(MANAGE)
    (tmp_path / "site_settings.py").write_text(SETTINGS)
    (tmp_path / "ordering.py").write_text(ORDERING)
    monkeypatch.setenv("STREAM_URL", server.url)

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
    assert python("ordering.py") == "['tea']\n"
    assert python("manage.py", "pack", "--until-empty") == "packed tea\n"
    assert python("manage.py", "pack", "--until-empty") == ""
    python("manage.py", "test")
