"""The keywords of a broker that a program makes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks import Plugin

import vmq
from vmq.config.embedding import Keywords, as_toml
from vmq.config.load import load
from vmq.testing import BrokerThread, MqttClient


def over(config: vmq.Config | None = None, /, **options: Any) -> vmq.Config:
    return Keywords.of(options).over(config)


def test_nothing_said_is_the_configuration_itself() -> None:
    config = vmq.Config()
    assert over(config) is config
    assert over() == config


def test_sections_stand_over_a_configuration() -> None:
    base = over(queue={"drop": "oldest", "max_bytes": 7}, plugins={"a": {"path": "x", "own": 1}})
    config = over(base, queue={"max_bytes": 8}, plugins={"b": {"path": "y"}})
    assert (config.queue.drop, config.queue.max_bytes) == ("oldest", 8)
    assert [*config.plugins] == ["a", "b"]
    assert config.plugins["a"].own_options == {"own": 1}


def test_listeners_come_by_url_or_by_section_not_both() -> None:
    config = over(listen=["tcp://127.0.0.1:1", "ws://127.0.0.1:2/mqtt"])
    found = [each.url for each in config.listeners.values()]
    assert found == ["tcp://127.0.0.1:1", "ws://127.0.0.1:2/mqtt"]
    assert over(listen="unix:///tmp/x").listeners["1"].url == "unix:///tmp/x"
    with pytest.raises(vmq.ConfigError, match="listen: listeners says the same; accepted: one of"):
        over(listen="tcp://127.0.0.1:1", listeners={"a": {"url": "tcp://127.0.0.1:2"}})


@pytest.mark.parametrize(
    ("options", "said"),
    (
        ({"qeue": {}}, r"^Broker\(\): qeue: there is no keyword 'qeue'; did you mean 'queue'\?$"),
        ({"acls": []}, "acls: there is no keyword 'acls'; did you mean 'acl'"),
        ({"port": 1883}, "there is no keyword 'port'; accepted: listen, data_dir, users, acl, pl"),
        ({"queue": {"dorp": "oldest"}}, r"queue\.dorp = \"oldest\": unknown option; did you mean"),
        ({"queue": {"max_bytes": "much"}}, r"queue\.max_bytes = \"much\""),
    ),
)
def test_a_mistake_names_key_value_and_what_is_accepted(options: dict[str, Any], said: str) -> None:
    with pytest.raises(vmq.ConfigError, match=said):
        over(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    (
        ({"config": 5}, "config = 5: accepted: a vmq.Config"),
        ({"listen": 5}, "listen = 5: accepted: a URL, or a list of them"),
        ({"listen": [5]}, "listen = [5]: accepted: a URL, or a list of them"),
        ({"data_dir": 5}, "data_dir = 5: accepted: a path, or None"),
        ({"users": 5}, "users: accepted: a mapping of names to passwords"),
        ({"users": {"a": 5}}, "users.a: accepted: a mapping of names to passwords"),
        ({"users": {}}, "users: it is empty, so nobody could connect"),
        ({"acl": 5}, "acl = 5: accepted: rules as a text, or a list of its lines"),
        ({"plugins": 5}, "plugins = 5: accepted: a mapping of names"),
        ({"plugins": {"a": 3}}, "plugins.a: accepted: a mapping of options, a plugin (an object"),
        ({"plugins": {"a": Plugin}}, "plugins.a: accepted: a mapping of options, a plugin (an"),
        ({"plugins": {"a": (Plugin, {})}}, "plugins.a: accepted: a mapping of options, a plugin"),
        ({"queue": 3}, "queue = 3: accepted: a mapping of options"),
        ({"queue": {"drop": object()}}, "queue: "),
    ),
)
def test_a_keyword_that_is_none_is_named_with_what_is_accepted(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(vmq.ConfigError, match=re.escape(f"Broker(): {said}")):
        vmq.Broker(**options)


def test_passwords_are_not_in_messages() -> None:
    users: list[Any] = [[("alice", "secret")], {"alice": ["secret"]}]
    for given in users:
        with pytest.raises(vmq.ConfigError) as refused:
            vmq.Broker(users=given)
        assert "secret" not in str(refused.value)


def test_a_file_of_the_same_says_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "listen": "tcp://127.0.0.1:1",
        "acl": ["topic read a\\b/#", 'user "x"'],
        "queue": {"drop": "oldest"},
        "streams": {"s": {"filters": ["a/#"]}},
    }
    text = as_toml(options)
    file = tmp_path / "vmq.toml"
    file.write_text(text)
    assert tomllib.loads(text)["queue"] == {"drop": "oldest"}
    told = over(**options)
    read = load(file).config
    assert read.queue == told.queue
    assert read.streams == told.streams
    assert read.plugins["vmq_acl"].own_options == told.plugins["vmq_acl"].own_options


def test_passwords_are_no_open_text_in_the_configuration() -> None:
    config = over(users={"alice": "secret"})
    assert "secret" not in str(config)
    assert config.plugins["vmq_passwd"].own_options["passwords"]["alice"].startswith("$7$1$")


def test_users_and_rules_hold() -> None:
    options: dict[str, Any] = {
        "users": {"alice": "a", "bob": "b"},
        "acl": "user alice\ntopic write news/#\nuser bob\ntopic read news/#",
    }
    with BrokerThread(**options) as broker:
        with pytest.raises(ConnectionRefusedError, match="code 4"):
            MqttClient(broker.url, username="alice", password="b").open()
        with pytest.raises(ConnectionRefusedError):
            MqttClient(broker.url).open()
        with (
            MqttClient(broker.url, username="alice", password="a") as alice,
            MqttClient(broker.url, username="bob", password="b") as bob,
        ):
            bob.subscribe("news/#", qos=1)
            alice.publish("news/1", "x", qos=1)
            assert bob.receive().payload == b"x"
            with pytest.raises(PermissionError):
                alice.subscribe("news/#")


def test_no_rule_is_no_right() -> None:
    with (
        BrokerThread(acl=[]) as broker,
        MqttClient(broker.url) as client,
        pytest.raises(ConnectionError),
    ):
        client.publish("a", "", qos=1)


def test_a_wrong_rule_or_hash_names_its_line() -> None:
    with pytest.raises(vmq.StartError, match=r"plugins\.vmq_acl\.rules = .*: line 2: "):
        BrokerThread(acl=["topic read a", "nonsense"]).start()
    options: dict[str, Any] = {"plugins": {"vmq_passwd": {"passwords": {"a": "plain"}}}}
    with pytest.raises(vmq.StartError, match=r"plugins\.vmq_passwd\.passwords.*line 1: user 'a'"):
        BrokerThread(**options).start()


def exists(path: Path) -> bool:
    return path.exists()


async def test_data_go_with_a_broker_that_keeps_none() -> None:
    broker = vmq.Broker(listen="tcp://127.0.0.1:0", data_dir=None)
    folder = Path(broker.config.broker.data_dir)
    assert not exists(folder)
    async with broker:
        with pytest.raises(vmq.StartError, match="started already"):
            await broker.start()
        assert exists(folder / "store")
    assert not exists(folder)


async def test_options_go_with_a_plugin_of_the_program() -> None:
    class Limits(msgspec.Struct, forbid_unknown_fields=True):
        limit: int = 1

    class Seen(Plugin):
        Config = Limits

        def start(self, broker: object, config: Limits) -> None:
            self.limit = config.limit

    first, second = Seen(), Seen()
    broker = vmq.Broker(
        listen="tcp://127.0.0.1:0",
        data_dir=None,
        plugins={"first": (first, {"priority": 5, "limit": 7}), "second": second},
    )
    async with broker:
        assert (first.limit, second.limit) == (7, 1)
        assert broker.config.plugins["first"].priority == 5
        assert [each.name for each in broker.plugins.in_order()] == ["second", "first"]
