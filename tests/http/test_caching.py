"""Entity tags, conditional reads, and what a cache may keep."""

from __future__ import annotations

from base64 import b64encode

import pytest

from tests.http.client import JSON, TEXT, Client, fresh
from tests.http.wire import Reply

CATCH_UP = "public, max-age=60, stale-while-revalidate=300"


def revalidate(client: Client, path: str, tag: str, query: str = "") -> Reply:
    return client.get(path, query, {"If-None-Match": tag})


def test_the_form_of_a_tag(client: Client) -> None:
    path = client.create(TEXT, b"one", path=fresh("form/of"))
    name = b64encode(path.encode()).decode()
    tag = client.get(path).headers["ETag"]
    assert tag.startswith(f'"{name}:')
    assert tag.endswith('"')
    assert len(tag.strip('"').split(":")) == 3
    client.close(path)
    assert client.get(path).headers["ETag"] == tag[:-1] + ':c"'


def test_nothing_new_is_304(client: Client) -> None:
    path = client.create(TEXT, b"one")
    full = client.get(path)
    reply = revalidate(client, path, full.headers["ETag"])
    assert (reply.status, reply.body) == (304, b"")
    for name in ("ETag", "Cache-Control", "Stream-Next-Offset", "Stream-Up-To-Date", "Vary"):
        assert reply.headers.get(name) == full.headers.get(name), name


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', '{} , "other"', "*"])
def test_all_forms_of_if_none_match(client: Client, form: str) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    assert revalidate(client, path, form.format(tag)).status == 304


@pytest.mark.parametrize("value", ['"other"', "", "nonsense", '"', ",,,", "\xff"])
def test_a_tag_that_does_not_match(client: Client, value: str) -> None:
    path = client.create(TEXT, b"one")
    assert revalidate(client, path, value).status == 200


def test_the_tag_changes_with_an_append(client: Client) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    client.post(path, b"two", TEXT)
    reply = revalidate(client, path, tag)
    assert (reply.status, reply.body) == (200, b"onetwo")


def test_the_tag_changes_with_the_close(client: Client) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    client.close(path)
    reply = revalidate(client, path, tag)
    assert reply.status == 200
    assert reply.headers["Stream-Closed"] == "true"
    assert revalidate(client, path, reply.headers["ETag"]).status == 304


def test_the_tag_changes_when_the_path_is_used_again(client: Client) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    client.delete(path)
    client.create(TEXT, b"one", path=path)
    reply = revalidate(client, path, tag)
    assert (reply.status, reply.body) == (200, b"one")


def test_an_empty_stream_used_again_has_another_tag(client: Client) -> None:
    path = client.create(TEXT)
    tag = client.get(path).headers["ETag"]
    client.delete(path)
    client.create(TEXT, path=path)
    assert client.get(path).headers["ETag"] != tag


def test_the_tag_depends_on_where_the_read_starts(client: Client) -> None:
    path = client.create(TEXT, b"one")
    middle = client.head(path).next_offset
    client.post(path, b"two", TEXT)
    tag = client.get(path).headers["ETag"]
    assert client.get(path, f"offset={middle}").headers["ETag"] != tag
    assert client.get(path, "offset=-1").headers["ETag"] == tag


def test_the_tag_of_one_path_is_not_that_of_another(client: Client) -> None:
    one, two = client.create(TEXT, b"same"), client.create(TEXT, b"same")
    assert client.get(one).headers["ETag"] != client.get(two).headers["ETag"]


def test_now_is_never_kept(client: Client) -> None:
    path = client.create(TEXT, b"one")
    reply = client.get(path, "offset=now", {"If-None-Match": "*"})
    assert reply.status == 200
    assert "ETag" not in reply.headers
    assert reply.headers["Cache-Control"] == "no-store"


def test_a_read_to_an_open_tail_is_revalidated(client: Client) -> None:
    path = client.create(TEXT, b"one")
    for query in ("", "offset=-1", f"offset={client.head(path).next_offset}"):
        assert client.get(path, query).headers["Cache-Control"] == "no-cache", query


def test_what_can_no_longer_change_may_be_kept(client: Client) -> None:
    path = client.create(TEXT, b"one")
    client.close(path)
    assert client.get(path).headers["Cache-Control"] == CATCH_UP


def test_a_full_page_may_be_kept(hasty: Client) -> None:
    path = hasty.create(TEXT, b"x" * 60, b"y" * 60)
    page = hasty.get(path)
    assert page.body == b"x" * 60
    assert page.headers["Cache-Control"] == CATCH_UP
    # It has to stay the same then, whatever is appended.
    hasty.post(path, b"z", TEXT)
    again = hasty.get(path)
    assert (again.body, again.headers["ETag"]) == (page.body, page.headers["ETag"])
    assert revalidate(hasty, path, page.headers["ETag"]).status == 304


def test_compressible_reads_vary(client: Client) -> None:
    for content_type in (TEXT, JSON):
        path = client.create(content_type, b"1")
        assert "Accept-Encoding" in client.get(path).headers["Vary"]


def test_head_and_errors_are_not_kept(client: Client) -> None:
    path = client.create(TEXT, b"one")
    assert client.head(path).headers["Cache-Control"] == "no-store"
    assert client.get("unknown").headers["Cache-Control"] == "no-store"
    assert client.get(path, "offset=bad").headers["Cache-Control"] == "no-store"


def test_a_conditional_read_of_a_stream_that_is_gone(client: Client) -> None:
    path = client.create(TEXT, b"one")
    tag = client.get(path).headers["ETag"]
    client.delete(path)
    assert revalidate(client, path, tag).status == 404
