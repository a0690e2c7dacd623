"""The same file of rules, read by mosquitto and by vmq_acl.

Two differences are meant: with mosquitto a user's grant wins over a pattern that denies, here a denial
always wins; and a name with `/` reaches into lower levels there, here it is granted nothing.
"""

import queue
import random
from itertools import product
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions
from vmq_acl.acl import Acl, Verdict
from vmq_acl.names import Names
from vmq_acl.rules import Access, parse
from vmq_hooks.files import FileError

from tests.support.servers import mosquitto
from tests.support.wire import PUBACK, Wire, publish_packet

TIMEOUT = 20.0
WORDS = ["a", "b", "lamp"]
TOPICS = ["/".join(words) for depth in (1, 2, 3) for words in product(WORDS, repeat=depth)]
TOPICS += ["$a/b", "$a"]
CLIENTS = [
    Names(username, client_id)
    for username in (None, "bob", "b", "c/d")
    for client_id in ("lamp", "a", "l+mp", "#", "a/b")
]
#: The publisher that may do everything, and a topic by which a reader knows that this was all.
ADMIN, END = "admin", "$end/of/topics"


def rules_text(seed: int) -> str:
    """Random rules for the general section, two users and patterns."""
    draw = random.Random(seed)
    lines = [f"topic read {END}"]

    def some(keyword: str, count: int, words: list[str]) -> None:
        for _ in range(count):
            levels = draw.choices([*words, "+"], k=draw.randint(1, 3))
            if draw.random() < 0.3:
                levels.append("#")
            access = draw.choice(["read", "write", "readwrite", "", "deny"])
            lines.append(" ".join(filter(None, [keyword, access, "/".join(levels)])))

    some("topic", 5, WORDS)
    some("topic", 1, ["$a"])
    for user in ("bob", "b"):
        lines += [f"user {user}", f"topic read {END}"]
        some("topic", 5, WORDS)
        some("pattern", 1, [*WORDS, "%c", "%u", "x-%u"])
    lines += ["user c/d", f"topic read {END}"]
    lines += [f"user {ADMIN}", "topic #", "topic $a/#", "topic $a", f"topic {END}"]
    return "\n".join(lines) + "\n"


class Client:
    """An MQTT 5 client of mosquitto: there a refused publish is told by its reason code."""

    def __init__(self, port: int, names: Names) -> None:
        self._acks: queue.Queue[tuple[int, bool]] = queue.Queue()
        self.topics: queue.Queue[str] = queue.Queue()
        self._ready: queue.Queue[bool] = queue.Queue()
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=names.client_id, protocol=paho.MQTTv5
        )
        self._paho.max_inflight_messages_set(0)
        if names.username is not None:
            self._paho.username_pw_set(names.username, "x")
        self._paho.on_connect = lambda client, data, flags, code, properties: self._ready.put(True)
        self._granted: list[bool] = []
        self._paho.on_subscribe = self._on_subscribe
        self._paho.on_publish = self._on_publish
        self._paho.on_message = lambda client, data, message: self.topics.put(message.topic)
        self._paho.connect("127.0.0.1", port)
        self._paho.loop_start()
        self._ready.get(timeout=TIMEOUT)

    def _on_publish(
        self, client: paho.Client, data: object, mid: int, code: ReasonCode, props: Properties
    ) -> None:
        self._acks.put((mid, not code.is_failure))

    def _on_subscribe(
        self,
        client: paho.Client,
        data: object,
        mid: int,
        codes: list[ReasonCode],
        props: Properties,
    ) -> None:
        self._granted = [not each.is_failure for each in codes]
        self._ready.put(True)

    def granted(self, *filters: str) -> list[bool]:
        self.subscribe(*filters)
        return self._granted

    def publish(self, *topics: str) -> dict[str, bool]:
        """Which of the topics may be written to."""
        sent = {self._paho.publish(topic, b"", qos=1).mid: topic for topic in topics}
        acks = dict(self._acks.get(timeout=TIMEOUT) for _ in sent)
        return {topic: acks[mid] for mid, topic in sent.items()}

    def subscribe(self, *filters: str) -> None:
        self._paho.subscribe([(each, SubscribeOptions(qos=0)) for each in filters])
        self._ready.get(timeout=TIMEOUT)

    def received(self) -> set[str]:
        """What came before the topic that says: this was all."""
        return set(iter(lambda: self.topics.get(timeout=TIMEOUT), END))

    def close(self) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()


def has_slash(names: Names) -> bool:
    """Whether a name would reach into lower levels: with mosquitto it does."""
    return "/" in names.client_id + (names.username or "")


def test_mosquitto_grants_the_same(tmp_path: Path) -> None:
    granted = denied = 0
    for seed in range(3):
        text = rules_text(seed)
        file = tmp_path / "acl"
        file.write_text(text)
        file.chmod(0o600)
        rules = parse(text.encode(), file)
        acl = Acl(rules)
        lenient = Acl([rule for rule in rules if not (rule.is_pattern and rule.denies)])
        with mosquitto(tmp_path, f"acl_file {file}", "allow_anonymous true") as (_, port):
            admin = Client(port, Names(ADMIN, ADMIN))
            for names in CLIENTS:
                client = Client(port, names)
                may_write = client.publish(*TOPICS)
                client.subscribe("#", "$a/#", END)
                assert all(admin.publish(*TOPICS, END).values())
                may_read = client.received()
                client.close()
                for topic in TOPICS:
                    theirs = {Access.WRITE: may_write[topic], Access.READ: topic in may_read}
                    for access, allowed in theirs.items():
                        verdict = acl.check(access, topic, names)
                        where = f"{seed}: {names} {access} {topic}\n{text}"
                        if verdict is Verdict.GRANTED:
                            assert allowed, where
                            granted += 1
                        elif allowed and not has_slash(names):
                            # So a pattern denied it.
                            assert verdict is Verdict.DENIED, where
                            assert lenient.check(access, topic, names) is Verdict.GRANTED, where
                        else:
                            denied += 1
            admin.close()
    assert granted > 500
    assert denied > 500


DIFFERENT = """\
user bob
topic read a/b
topic read
topic deny a/c
topic write w
topic pub/#
pattern deny no/%u
pattern write own/%c/x
pattern write open/%c
"""


def test_where_mosquitto_decides_otherwise(tmp_path: Path) -> None:
    """The differences that the plugin's page names, each to the side that it says."""
    file = tmp_path / "acl"
    file.write_text(DIFFERENT)
    file.chmod(0o600)
    with pytest.raises(FileError, match="line 3: topic read: a topic filter is missing"):
        parse(DIFFERENT.encode(), file)
    acl = Acl(parse(DIFFERENT.replace("topic read\n", "").encode(), file))
    bob, reserved = Names("bob", "c"), Names("bob", "$a")
    with mosquitto(tmp_path, f"acl_file {file}", "allow_anonymous true") as (_, port):
        client, other = Client(port, bob), Client(port, reserved)
        # The topic called "read".
        assert client.publish("read", "other") == {"read": True, "other": False}
        # A reserved word as a name.
        assert other.publish("own/$a/x") == {"own/$a/x": True}
        assert acl.check(Access.WRITE, "own/$a/x", reserved) is Verdict.NOT_GRANTED
        # Subscriptions are granted, whatever may be read.
        assert client.granted("#", "a/#") == [True, True]
        for topic_filter in ("#", "a/#"):
            assert acl.check(Access.READ, topic_filter, bob) is not Verdict.GRANTED
        # A denial by a name that cannot be put in denies nothing there, and everything here.
        unusable = Names("b/c", "e")
        third = Client(port, unusable)
        assert third.publish("open/e") == {"open/e": True}
        assert acl.check(Access.WRITE, "open/e", unusable) is Verdict.DENIED
        for each in (client, other, third):
            each.close()
        # MQTT 3.1.1: a refused PUBLISH is acknowledged.
        with Wire.connected(("127.0.0.1", port), "old", username="bob", password="x") as wire:
            assert wire.ask(publish_packet("other", b"", qos=1, packet_id=7), PUBACK).packet_id == 7
