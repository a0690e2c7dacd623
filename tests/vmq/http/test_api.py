"""The API over HTTP: keys, parameters, answers."""

import asyncio
import json
import logging
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.peer import Peer
from tests.support.tools import require_tool
from tests.vmq.http.conftest import Site, ask
from vmq.admin.keys import ApiKeys
from vmq.admin.listing import SLICE
from vmq.broker import Broker
from vmq.http.operations import OPERATIONS

# Keys


async def test_without_a_key_nothing_is_done(site: Site) -> None:
    key = {"x-api-key": "vmq_wrong"}
    for each in OPERATIONS:
        for headers in ({}, key, {"Authorization": "Bearer x"}, {"Authorization": "Basic ???"}):
            status, answer = await ask(site, each.method, each.path, headers=headers)
            assert (status, "API key" in answer["error"]) == (401, True), each.name


async def test_a_key_opens_as_header_and_as_user(site: Site) -> None:
    keys = ApiKeys(site.folder)
    key = keys.create("test")
    header = {"x-api-key": key.key}
    assert (await ask(site, "GET", "/sessions", headers=header))[0] == 200
    user = {"Authorization": "Basic " + b64encode(f"{key.key}:ignored".encode()).decode()}
    assert (await ask(site, "GET", "/sessions", headers=user))[0] == 200
    keys.delete(key.id)
    assert (await ask(site, "GET", "/sessions", headers=header))[0] == 401


async def test_a_refusal_offers_basic_authentication(site: Site) -> None:
    async with site.client.get(site.base + "/api/v1/sessions") as answer:
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")


async def test_a_key_makes_no_further_keys(site: Site) -> None:
    header = {"x-api-key": ApiKeys(site.folder).create().key}
    status, _ = await ask(site, "POST", "/api-key", headers=header, json={})
    assert status == 404
    assert len(ApiKeys(site.folder).list_keys()) == 1


async def test_keys_are_managed_where_none_are_needed(local: Site) -> None:
    status, made = await ask(local, "POST", "/api-key", json={"name": "grafana"})
    assert status == 200
    assert ApiKeys(local.folder).find(made["key"])
    _, listed = await ask(local, "GET", "/api-keys")
    assert [row["name"] for row in listed["rows"]] == ["grafana"]
    assert "key" not in listed["rows"][0]
    found = await ask(local, "DELETE", "/api-key", params={"id": made["id"]})
    assert found == (200, {"id": made["id"]})
    assert ApiKeys(local.folder).find(made["key"]) is None


async def test_a_key_that_may_look_changes_nothing(site: Site) -> None:
    peer = Peer(site.broker.registry(), "me")
    header = {"x-api-key": ApiKeys(site.folder).create("dashboard", "read").key}
    assert (await ask(site, "GET", "/sessions", headers=header))[0] == 200
    asked = {"client_id": "me"}
    status, answer = await ask(site, "DELETE", "/session", headers=header, params=asked)
    assert (status, "scope is read" in answer["error"]) == (403, True)
    change = {"option": "queue.drop", "value": "oldest"}
    assert (await ask(site, "POST", "/option", headers=header, json=change))[0] == 403
    assert peer.is_open


async def test_keys_made_before_scopes_were_there_are_good_for_all(site: Site) -> None:
    keys = ApiKeys(site.folder)
    key = keys.create().key
    keys.path.write_text(keys.path.read_text().replace('"scope": "all",', ""))
    assert keys.list_keys()[0].scope == "all"
    assert keys.find(key)


async def test_a_defect_is_an_answer_and_a_line_in_the_log(
    local: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("sore")

    monkeypatch.setattr("vmq.admin.sessions.show_session", broken)
    status, answer = await ask(local, "GET", "/session", params={"client_id": "me"})
    assert status == 500
    assert "sore" not in answer["error"]
    assert "sore" in caplog.text


# Operations


@pytest.mark.parametrize("client_id", ["..", "a/b", "a?b&c=d", "%2F", "#+", "ü", " x "])
async def test_a_client_id_may_be_any_text(local: Site, client_id: str) -> None:
    Peer(local.broker.registry(), client_id)
    status, answer = await ask(local, "GET", "/session", params={"client_id": client_id})
    assert (status, answer["client_id"]) == (200, client_id)


# Mistakes

STREAM = {"name": "plant", "filters": ["plant/#"]}


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "said"),
    [
        ("GET", "/sessions", {"params": {"limit": "x"}}, 400, "limit"),
        (
            "GET",
            "/sessions",
            {"params": {"limit": "-1"}},
            400,
            '"-1" is not accepted; accepted: a whole',
        ),
        ("GET", "/sessions", {"params": {"limti": "1"}}, 400, "accepted parameters: where, sort"),
        ("GET", "/sessions?limit=1&limit=2", {}, 400, "more than once"),
        ("GET", "/sessions", {"params": {"where": "x = 1"}}, 400, "no column 'x'"),
        ("GET", "/sessions", {"params": {"where": "client_id ~ '('"}}, 400, "a ( without"),
        ("GET", "/session", {}, 400, "client_id"),
        ("GET", "/session", {"params": {"client_id": ""}}, 400, "client_id"),
        ("GET", "/why", {"params": {"client_id": "a", "topic": "t", "qos": "3"}}, 400, "0 to 2"),
        ("POST", "/stream", {"json": {**STREAM, "partitions": 0}}, 400, "partitions: 0 is not"),
        ("POST", "/stream", {"json": {**STREAM, "acks": "no"}}, 400, '"leader", "quorum"'),
        ("POST", "/stream", {"json": {**STREAM, "filters": []}}, 400, "a list of topic filters"),
        ("DELETE", "/retained", {"params": {"filter": "a/#/b"}}, 400, "misplaced #"),
        ("POST", "/option", {"data": "{}"}, 400, "application/json"),
        ("POST", "/option", {"json": [1]}, 400, "JSON object"),
        ("POST", "/option", {"json": {"option": "a"}}, 400, "value"),
        ("POST", "/option", {"json": {"option": 1, "value": "x"}}, 400, "option"),
        ("POST", "/option", {"json": {"option": "queue.drop", "value": [1]}}, 400, "value"),
        ("GET", "", {}, 404, "openapi.json"),
        ("POST", "/option?option=a", {"json": {}}, 400, "from the body"),
        ("POST", "/listener/stop", {"json": {"name": "x"}}, 404, "accepted: tcp"),
        ("GET", "/nothing", {}, 404, "openapi.json"),
        ("GET", "/session?client_id=%FF", {}, 400, "no UTF-8"),
        ("POST", "/sessions", {"json": {}}, 405, "accepted: GET"),
        ("GET", "/sessions", {"params": {"mountpoint": "x"}}, 404, "accepted: ''"),
        ("GET", "/session", {"params": {"client_id": "a", "mountpoint": "x"}}, 404, "mountpoint"),
        ("DELETE", "/option", {"params": {"option": "queue.drop"}}, 404, "as configured"),
        ("DELETE", "/option", {"params": {"option": "queue.dorp"}}, 404, "no option"),
    ],
)
async def test_mistakes_are_answered_with_what_is_right(
    local: Site, method: str, path: str, more: dict[str, Any], status: int, said: str
) -> None:
    found, answer = await ask(local, method, path, **more)
    assert found == status, answer
    assert said in answer["error"]


async def test_a_body_that_is_too_large_is_refused(local: Site) -> None:
    headers = {"Content-Type": "application/json"}
    body = BytesIO(b'{"value": "' + bytes(2**20))
    status, answer = await ask(local, "POST", "/option", data=body, headers=headers)
    assert status == 413
    assert "the body is too large (at most 1048576 bytes" in answer["error"]


@pytest.mark.parametrize(
    ("path", "body", "more", "said"),
    [
        ("/option", b"{", {}, "no JSON"),
        ("/option", b'{"option": "\xe4"}', {}, "no JSON"),
        ("/option", b"abc", {"Content-Encoding": "gzip"}, "not come as its head says"),
        ("/live/token", b"abc", {"Content-Encoding": "gzip"}, "not come as its head says"),
        ("/../../restmqtt/api/v1/publish", b"abc", {"Content-Encoding": "gzip"}, "not come as"),
    ],
)
async def test_a_body_that_is_no_json_is_refused(
    local: Site, path: str, body: bytes, more: dict[str, str], said: str
) -> None:
    headers = {"Content-Type": "application/json"} | more
    status, answer = await ask(local, "POST", path, data=body, headers=headers)
    assert status == 400
    assert said in answer["error"]


# A client that we did not write


async def test_curl(site: Site) -> None:
    key = ApiKeys(site.folder).create().key
    program = require_tool("curl")

    async def curl(*words: str) -> tuple[str, Any]:
        command = (program, "--silent", "--write-out", "\n%{http_code}", *words)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        body, _, status = out.decode().rpartition("\n")
        return status, json.loads(body)

    peer = Peer(site.broker.registry(), "a/b c")
    url = site.base + "/api/v1"
    assert (await curl(url + "/sessions"))[0] == "401"
    status, answer = await curl("--user", key + ":", url + "/sessions")
    assert (status, answer["rows"][0]["client_id"]) == ("200", "a/b c")
    header = ("--header", f"x-api-key: {key}")
    body = ("--json", '{"option": "queue.drop", "value": "oldest"}')
    assert (await curl(*header, *body, url + "/option"))[1]["value"] == "oldest"
    words = ("--get", "--data-urlencode", "client_id=a/b c", "--request", "DELETE")
    assert (await curl(*header, *words, url + "/session"))[0] == "200"
    assert not peer.is_open


# Long listings


async def test_a_long_listing_lets_others_in_between(local: Site) -> None:
    registry = local.broker.registry()
    count = 5 * SLICE
    for number in range(count):
        Peer(registry, f"c{number}", clean=False).leave()
    turns = 0
    done = False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    watcher = asyncio.create_task(other())
    _, answer = await ask(local, "GET", "/sessions", params={"limit": "0"})
    done = True
    await watcher
    assert len(answer["rows"]) == count
    assert turns >= count // SLICE
    _, answer = await ask(local, "GET", "/sessions", params={"sort": "-client_id"})
    assert answer["more"] is True
    assert [row["client_id"] for row in answer["rows"]] == sorted(
        (f"c{number}" for number in range(count)), reverse=True
    )[:100]


async def test_a_listing_names_the_nodes_that_did_not_answer(
    local: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, answer = await ask(local, "GET", "/sessions")
    assert answer == {"rows": [], "more": False}

    async def silent(_: Broker) -> AsyncIterator[tuple[str, None]]:
        for node in ("b", "c"):
            yield node, None

    monkeypatch.setattr("vmq.admin.elsewhere.away_in_slots_elsewhere", silent)
    _, answer = await ask(local, "GET", "/sessions")
    assert answer == {"rows": [], "more": False, "missing": ["b", "c"]}


async def test_who_leaves_in_the_middle_disturbs_nobody(
    local: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * SLICE):
        Peer(local.broker.registry(), f"c{number}", clean=False).leave()
    for _ in range(3):
        answer = await local.client.get(local.base + "/api/v1/sessions", params={"limit": "0"})
        answer.close()
    url = urlsplit(local.base)
    for _ in range(3):
        with socket.create_connection((url.hostname or "", url.port or 0)) as gone:
            gone.sendall(b"GET /api/v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n")
    status, _ = await ask(local, "GET", "/sessions")
    assert status == 200
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
