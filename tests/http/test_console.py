"""The console is served whole, and reaches for nothing that is not there."""

from __future__ import annotations

import posixpath
import re
from importlib.resources import files

import pytest

from headwater.http.console.resource import parts
from headwater.http.routes import ROUTES
from tests.http.client import Client
from tests.support.server import ServerProcess

PARTS = {name: text.decode() for name, text in parts(files("headwater.http.console"))}
SCRIPTS = {name: text for name, text in PARTS.items() if name.endswith(".js")}
# What the console uses of the browser module, which is served next to it.
MODULE = {f"../js/{name}": text.decode() for name, text in parts(files("headwater.http.js"))}


def test_a_browser_is_sent_to_the_console(client: Client) -> None:
    answer = client.send("GET", "/", {"Accept": "text/html,*/*;q=0.8"})
    assert answer.status == 303
    assert answer.headers["location"] == "/console/"
    assert client.send("GET", "/").headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("query", ["", "?a=1&b=%22%3E%0d%0aX:%20y"])
def test_the_slash_may_be_left_out(client: Client, method: str, query: str) -> None:
    answer = client.send(method, f"/console{query}")
    assert (answer.status, answer.body) == (308, b"")
    assert answer.headers["location"] == f"console/{query}"
    assert "x" not in answer.headers
    assert client.send("GET", "/consoles").status == 404
    assert client.send("POST", "/console").status == 405


def test_the_page_may_load_nothing_from_elsewhere(client: Client) -> None:
    page = client.send("GET", "/console/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "unsafe" not in policy
    assert b"http" not in page.body
    assert not re.search(rb"<script(?! type=\"module\" src=)|<style| style=| on\w+=", page.body)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_part_is_served(client: Client, name: str) -> None:
    part = client.send("GET", f"/console/{name}")
    assert part.status == 200
    assert part.body.decode() == PARTS[name]
    known = client.send("GET", f"/console/{name}", {"If-None-Match": part.headers["etag"]})
    assert (known.status, known.body) == (304, b"")


@pytest.mark.parametrize(
    "name",
    [
        *("nothing.js", "__init__.py", "resource.py", "lib", "lib/", "lib/nothing.js", "a/b.js"),
        *("../settings.py", "%2e%2e/settings.py", "lib/../main.js", "lib%2fapi.js"),
    ],
)
def test_nothing_else_is(client: Client, name: str) -> None:
    assert client.send("GET", f"/console/{name}").status == 404


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_imports_name_what_the_other_part_exports(name: str) -> None:
    for names, other in re.findall(r'^import \{ (.+?) \} from "(\..+?)";$', SCRIPTS[name], re.M):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
        script = (SCRIPTS | MODULE)[target]
        exported = re.findall(r"^export (?:async )?(?:function\*?|const|class) (\w+)", script, re.M)
        assert set(names.split(", ")) <= set(exported)
    assert not re.search(r'^(import|export) .* from "(?!\.)', SCRIPTS[name], re.M)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_makes_markup_or_code_of_text(name: str) -> None:
    """Everything goes in as text, so nothing that a stream holds can become a part of the page."""
    for way in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "srcdoc"):
        assert way not in SCRIPTS[name]
    assert not re.search(r"\bnew Function\b|javascript:|setAttribute\(.style", SCRIPTS[name])


def test_it_asks_only_for_what_the_server_has() -> None:
    """Addresses in the scripts, with what is filled in cut off, begin documented ones."""
    documented = [re.sub(r"\{.*", "", one.path) for one in ROUTES]
    documented.append("/v1/cluster")  # shown only where there is one
    addresses = re.findall(r'["`](/[a-z][\w./]+)', "".join(SCRIPTS.values()))
    resources = set(re.findall(r"/(_\w+)", "".join(SCRIPTS.values())))
    assert len(addresses) > 5
    assert all(any(path.startswith(one) for path in documented) for one in addresses), addresses
    assert resources <= {part for one in ROUTES for part in one.path.split("/")}, resources


def test_a_server_without_it() -> None:
    with ServerProcess("--memory", "--no-console") as server:
        client = Client(server)
        assert client.send("GET", "/console/").status == 404
        assert client.send("GET", "/console").status == 404
        assert client.send("GET", "/", {"Accept": "text/html"}).status == 200
