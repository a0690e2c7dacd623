"""Publishing by HTTP: as the operator's own message, on behalf of a user, and as VerneMQ's vmq_http_pub takes it."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import ClientSession
from vmq_hooks import Message, Peer, Plugin, Refuse, SubscriberId, hook
from vmq_hooks.modifiers import PublishModifiers

from vmq.admin.keys import ApiKeys
from vmq.testing import AsyncMqttClient, BrokerThread

OLD = "/restmqtt/api/v1/publish"
NEW = "/api/v1/publish"
JSON = {"Content-Type": "application/json"}


class Gate(Plugin):
    """Lets in bob and the slow, who may publish to pub/; moves what goes to pub/move."""

    def __init__(self) -> None:
        self.told: list[tuple[str | None, str, str]] = []

    @hook
    async def auth_on_register(self, peer: Peer, username: str | None, password: bytes) -> Any:
        if username == "slow":
            return Refuse("too many wait", unavailable=True)
        return True if password == b"right" else Refuse("wrong", bad_credentials=True)

    @hook
    def auth_on_publish(self, username: str | None, message: Message) -> Any:
        if message.topic == "pub/move":
            return PublishModifiers(topic="pub/moved", payload=b"changed", qos=0)
        return True if message.topic.startswith("pub/") else Refuse("not there")

    @hook
    def on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> None:
        self.told.append((username, subscriber_id.client_id, message.topic))


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def broker(gate: Gate) -> Iterator[BrokerThread]:
    listen = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
    limits = {"max_message_size": 1000}
    with BrokerThread(listen=listen, plugins={"gate": gate}, limits=limits) as thread:
        yield thread


class Poster:
    """Posts with a key, and sees what comes of it."""

    def __init__(self, broker: BrokerThread, session: ClientSession, seen: AsyncMqttClient) -> None:
        self.base = broker.addresses[1]
        self.session = session
        self.seen = seen
        keys = ApiKeys(broker.folder / "data")
        self.key, self.reader = keys.create().key, keys.create(scope="read").key

    async def post(self, path: str, key: str | None = None, **more: Any) -> tuple[int, str]:
        headers = {"x-api-key": self.key if key is None else key, **more.pop("headers", {})}
        method = more.pop("method", "POST")
        url = self.base + path
        async with self.session.request(method, url, headers=headers, **more) as answer:
            return answer.status, await answer.text()

    async def next(self) -> tuple[str, bytes, int]:
        message = await self.seen.receive()
        return message.topic, message.payload, message.qos


@pytest.fixture
async def poster(broker: BrokerThread) -> AsyncIterator[Poster]:
    watcher = AsyncMqttClient(broker.url, username="bob", password="right")
    async with ClientSession() as session, watcher:
        await watcher.subscribe("#", qos=2)
        yield Poster(broker, session, watcher)


async def test_the_operator_s_own_message_asks_nobody(poster: Poster, gate: Gate) -> None:
    gate.told.clear()
    wanted = {"topic": "a/b", "payload": "hällo", "qos": 1}
    status, text = await poster.post(NEW, json=wanted)
    found = (status, json.loads(text))
    assert found == (200, {"topic": "a/b", "qos": 1, "retain": False, "mountpoint": ""})
    assert await poster.next() == ("a/b", "hällo".encode(), 1)
    raw = base64.b64encode(b"\xff\x00").decode()
    assert (await poster.post(NEW, json={"topic": "b", "payload": raw, "encoding": "base64"}))[
        0
    ] == 200
    assert await poster.next() == ("b", b"\xff\x00", 0)
    assert gate.told == []


async def test_on_behalf_of_a_user_the_plugins_decide(poster: Poster, gate: Gate) -> None:
    gate.told.clear()
    bob = {"user": "bob", "password": "right", "client_id": "meter"}
    assert (await poster.post(NEW, json={"topic": "pub/1", "payload": "x", **bob}))[0] == 200
    assert await poster.next() == ("pub/1", b"x", 0)
    status, text = await poster.post(NEW, json={"topic": "pub/move", "qos": 1, **bob})
    assert status == 200
    assert json.loads(text)["topic"] == "pub/moved"
    assert await poster.next() == ("pub/moved", b"changed", 0)
    assert gate.told == [("bob", "meter", "pub/1"), ("bob", "meter", "pub/moved")]


@pytest.mark.parametrize(
    ("wanted", "status", "said"),
    (
        ({"topic": "pub/1", "user": "bob", "password": "no"}, 401, "wrong"),
        ({"topic": "pub/1", "user": "slow", "password": "right"}, 503, "too many wait"),
        ({"topic": "other", "user": "bob", "password": "right"}, 403, "not there"),
        ({"topic": "$jobs/q", "user": "bob", "password": "right"}, 400, "begins with $"),
        ({"topic": "pub/1", "password": "right"}, 400, "it needs a user"),
        (
            {"topic": "pub/1", "payload": "x" * 1001, "user": "bob", "password": "right"},
            400,
            "at most 1000",
        ),
        ({"topic": "a/#"}, 400, "topic"),
        ({"topic": ""}, 400, "topic"),
        ({"topic": "a", "qos": 3}, 400, "qos: 3 is not accepted; accepted: 0, 1, 2"),
        ({"topic": "a", "payload": "?", "encoding": "base64"}, 400, "not base64"),
        ({"topic": "a", "mountpoint": "none"}, 404, "no mountpoint"),
        ({"topic": "a", "payload": "x" * 1001}, 400, "max_message_size"),
        ({"topic": "a", "paylaod": "x"}, 400, "paylaod"),
    ),
)
async def test_what_is_refused_says_why(
    poster: Poster, wanted: dict[str, Any], status: int, said: str
) -> None:
    found, text = await poster.post(NEW, json=wanted)
    assert (found, said in text) == (status, True), text


@pytest.mark.parametrize("path", (NEW, OLD))
async def test_it_takes_a_key_that_may_change_things(poster: Poster, path: str) -> None:
    assert (await poster.post(path, key="vmq_wrong", json={"topic": "a"}))[0] == 401
    assert (await poster.post(path, key=poster.reader, json={"topic": "a"}))[0] == 403


async def test_messages_are_not_in_the_audit_log(
    poster: Poster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vmq.audit")
    assert (await poster.post(NEW, json={"topic": "a", "payload": "private"}))[0] == 200
    assert "private" not in caplog.text
    assert "publish" not in caplog.text


# VerneMQ's shape


async def test_vernemq_s_json(poster: Poster) -> None:
    body = {"topic": "pub/T1", "user": "bob", "password": "right", "client_id": "c", "qos": 1}
    more = {"retain": False, "payload": '{"x":1}', "user_properties": [{"a": "b"}]}
    assert await poster.post(OLD, json=body | more) == (200, "")
    assert await poster.next() == ("pub/T1", b'{"x":1}', 1)
    encoded = {"topic": "pub/T1", "payload": "aGFsbG8gd2VsdA=="}
    assert await poster.post(OLD + "?encoding=base64", json=encoded, method="PUT") == (200, "")
    assert await poster.next() == ("pub/T1", b"hallo welt", 0)


async def test_vernemq_s_headers(poster: Poster) -> None:
    headers = {"QoS": "1", "clientid": "c", "user": "bob", "password": "right", "topic": "pub/T1"}
    headers["retain"] = "false"
    assert await poster.post(OLD, headers=headers, data=b'{"hello": "world"}') == (200, "")
    assert await poster.next() == ("pub/T1", b'{"hello": "world"}', 1)


async def test_vernemq_s_query(poster: Poster) -> None:
    query = "?topic=pub%2Fb&user=bob&password=right&client_id=c&qos=0"
    assert await poster.post(OLD + query, headers=JSON, data=b"\x00raw") == (200, "")
    assert await poster.next() == ("pub/b", b"\x00raw", 0)


@pytest.mark.parametrize(
    ("query", "more", "status"),
    (
        ("", {"data": b"no json"}, 400),
        ("", {"data": b"[" * 5000}, 400),
        ("", {"json": {"payload": "x"}}, 400),
        ("", {"json": {"topic": "a", "qos": 7}}, 400),
        ("?encoding=hex", {"json": {"topic": "a"}}, 400),
        ("?topic=a", {"headers": {"topic": "a"}}, 400),
        ("?topic=a&qos=many", {"data": b"x"}, 400),
        ("?topic=pub/%FF%FE", {"data": b"x"}, 400),
        ("?topic=pub/1&user=bob&password=no", {"data": b"x"}, 401),
        ("?topic=other&user=bob&password=right", {"data": b"x"}, 403),
        ("?topic=a", {"method": "GET"}, 405),
        ("?topic=a", {"data": b"x", "headers": {"Origin": "http://evil.example"}}, 400),
    ),
)
async def test_vernemq_s_shape_is_refused_with_its_status(
    poster: Poster, query: str, more: dict[str, Any], status: int
) -> None:
    found, text = await poster.post(OLD + query, **dict(more))
    assert found == status, text
