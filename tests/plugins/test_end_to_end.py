"""Passwords and rights as real clients meet them, over TCP and TLS."""

import queue
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from vmq_passwd import editing

from tests.listeners.conftest import ListenerFactory, factory, start, tls
from vmq.cli.main import main
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.closing import Closing
from vmq.testing.process import BrokerProcess

__all__ = ["start"]

TIMEOUT = 60.0
USERS = {"alice": b"1", "bob": b"2"}
ACL = """\
user alice
topic read news/#
topic read end
topic write home/alice/#
user bob
topic bobs
topic news/#
topic end
pattern write of/%c
"""
#: Looks often, so that a test does not wait long.
PLUGINS = """
[plugins.vmq_passwd]
file = "{folder}/passwd"
reload_interval = 0.05
[plugins.vmq_acl]
file = "{folder}/acl"
reload_interval = 0.05
"""


TCP = {"url": "tcp://127.0.0.1:0"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> IssuedCertificate:
    return authority.issue("localhost", ["localhost"])


def with_files(folder: Path) -> Path:
    for name, password in USERS.items():
        editing.add(folder / "passwd", name, password)
    (folder / "acl").write_text(ACL)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return with_files(tmp_path)


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, server: IssuedCertificate
) -> Iterator[BrokerProcess]:
    """A broker on TCP and TLS that asks both plugins, whose files stay as they are."""
    folder = with_files(tmp_path_factory.mktemp("shared"))
    with ExitStack() as stack:
        yield factory(stack, folder)(
            {"tcp": TCP, "tls": tls(server)}, rest=PLUGINS.format(folder=folder)
        )


@pytest.fixture
def guarded(start: ListenerFactory, files: Path) -> BrokerProcess:
    """A broker of a test's own that asks both plugins."""
    return start({"tcp": TCP}, rest=PLUGINS.format(folder=files))


class Client(Closing):
    """A paho client whose events a test waits for."""

    def __init__(
        self,
        broker: BrokerProcess,
        name: str | None,
        password: bytes | None = None,
        *,
        client_id: str = "",
        cafile: Path | None = None,
        certificate: IssuedCertificate | None = None,
        clean: bool = True,
    ) -> None:
        self.messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._codes: queue.Queue[int] = queue.Queue()
        self._granted: queue.Queue[list[int]] = queue.Queue()
        self._ended: queue.Queue[int] = queue.Queue()
        self._published: queue.Queue[int] = queue.Queue()
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=clean,
            reconnect_on_failure=False,
        )
        if name is not None:
            secret = USERS.get(name, b"") if password is None else password
            self._paho.username_pw_set(name, secret.decode())
        if cafile is not None:
            context = ssl.create_default_context(cafile=cafile)
            self._paho.tls_set_context(
                certificate.load_into(context) if certificate is not None else context
            )
            self._paho.tls_insecure_set(True)
        self._paho.on_connect = lambda c, d, flags, code, p: self._codes.put(code.value)
        self._paho.on_subscribe = lambda c, d, mid, codes, p: self._granted.put(
            [code.value for code in codes]
        )
        self._paho.on_message = lambda c, d, each: self.messages.put(
            (each.topic, bytes(each.payload))
        )
        self._paho.on_publish = lambda c, d, mid, code, p: self._published.put(mid)
        self._paho.on_disconnect = lambda c, d, flags, code, p: self._ended.put(code.value)
        url = next(each for each in broker.urls if each.startswith("tls" if cafile else "tcp"))
        host, port = url.split("//")[1].split(":")
        self._paho.connect(host, int(port))
        self._paho.loop_start()
        #: The reason code that MQTT 5 has for the return code of CONNACK.
        self.code = self._codes.get(timeout=TIMEOUT)

    def subscribe(self, *filters: str) -> list[int]:
        self._paho.subscribe([(each, 1) for each in filters])
        return self._granted.get(timeout=TIMEOUT)

    def publish(self, topic: str, payload: bytes = b"") -> None:
        self._paho.publish(topic, payload, qos=1)
        self._published.get(timeout=TIMEOUT)

    def publish_unasked(self, topic: str) -> None:
        """Without waiting for its acknowledgement."""
        self._paho.publish(topic, b"", qos=1)

    def wait_disconnected(self) -> None:
        self._ended.get(timeout=TIMEOUT)

    def receive(self) -> tuple[str, bytes]:
        return self.messages.get(timeout=TIMEOUT)

    def close(self) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()


#: CONNACK codes 0, 4 and 5 as paho gives them, in MQTT 5's reason codes.
ACCEPTED, BAD_CREDENTIALS, NOT_AUTHORISED = 0, 134, 135
REFUSED = 128


@pytest.mark.parametrize("secure", [False, True])
def test_who_knows_the_password_gets_what_the_rules_grant(
    shared: BrokerProcess, authority: Authority, secure: bool
) -> None:
    cafile = authority.cafile if secure else None
    for name, password, code in (
        ("alice", b"2", BAD_CREDENTIALS),
        ("alice", b"", BAD_CREDENTIALS),
        ("mallory", b"1", BAD_CREDENTIALS),
        (None, None, NOT_AUTHORISED),
    ):
        with Client(shared, name, password, cafile=cafile) as refused:
            assert refused.code == code, name
    with (
        Client(shared, "alice", cafile=cafile) as alice,
        Client(shared, "bob", client_id="lamp", cafile=cafile) as bob,
    ):
        assert (alice.code, bob.code) == (ACCEPTED, ACCEPTED)
        asked = ("news/#", "#", "home/alice/#", "$share/g/news/1", "$share/g/#")
        assert alice.subscribe(*asked) == [1, REFUSED, REFUSED, 1, REFUSED]
        bob.publish("news/2", b"x")
        assert alice.receive() == ("news/2", b"x")
        bob.publish("of/lamp")
        bob.publish_unasked("of/door")
        bob.wait_disconnected()
        alice.publish("home/alice/x")
        alice.publish_unasked("news/2")
        alice.wait_disconnected()


def test_new_rules_end_what_they_do_not_allow_and_nothing_else(
    guarded: BrokerProcess, files: Path
) -> None:
    with Client(guarded, "alice") as alice, Client(guarded, "bob") as bob:
        assert alice.subscribe("news/1", "news/2", "end") == [1, 1, 1]
        bob.publish("news/1", b"before")
        assert alice.receive() == ("news/1", b"before")
        (files / "acl").write_text(ACL.replace("topic read news/#", "topic read news/2", 1))
        guarded.wait_log("subscriptions ended that are no longer allowed: 1")
        for topic in ("news/1", "news/2", "end"):
            bob.publish(topic, b"after")
        assert [alice.receive()[0] for _ in range(2)] == ["news/2", "end"]
        assert alice.subscribe("news/1", "news/2") == [REFUSED, 1]


def test_rules_change_under_traffic_and_nothing_is_lost(
    guarded: BrokerProcess, files: Path
) -> None:
    sent = 0
    with Client(guarded, "alice") as alice, Client(guarded, "bob") as bob:
        assert alice.subscribe("news/#") == [1]
        for change in range(1, 4):
            (files / "acl").write_text(f"{ACL}user carol\ntopic {change}\n")
            while guarded.stderr_text().count("acl: new content is in force") < change:
                bob.publish("news/2", b"%d" % sent)
                sent += 1
        assert [int(alice.receive()[1]) for _ in range(sent)] == list(range(sent))


@pytest.mark.parametrize("name", ["vmq_acl", "vmq_passwd"])
def test_they_are_reloaded_while_clients_are_connected(
    guarded: BrokerProcess, files: Path, name: str
) -> None:
    with Client(guarded, "bob") as bob:
        assert main(["plugin", "reload", name, "--data-dir", str(guarded.data_dir)]) == 0
        bob.publish("news/1")
        with Client(guarded, "alice") as alice, Client(guarded, "alice", b"2") as refused:
            assert alice.subscribe("news/1", "#") == [1, REFUSED]
            assert refused.code == BAD_CREDENTIALS
        (files / "acl").write_text("topics\n")
        assert main(["plugin", "reload", name, "--data-dir", str(guarded.data_dir)]) == int(
            name == "vmq_acl"
        )
        bob.publish("news/1")


def test_passwords_alone_leave_topics_free(start: ListenerFactory, files: Path) -> None:
    broker = start({"tcp": TCP}, rest=f'[plugins.vmq_passwd]\nfile = "{files}/passwd"\n')
    with Client(broker, "bob") as bob:
        assert bob.subscribe("#") == [1]
        bob.publish("anything")


def test_the_brokers_figures_are_messages(start: ListenerFactory) -> None:
    broker = start({"tcp": TCP}, rest="[plugins.vmq_systree]\ninterval = 0.1")
    with Client(broker, None) as client:
        client.subscribe("$SYS/+/mqtt/connect/received")
        topic, payload = client.receive()
        assert topic.startswith("$SYS/")
        assert int(payload) >= 1


@pytest.mark.parametrize("accepted", [False, True])
def test_a_certificate_stands_for_a_password_if_it_may(
    start: ListenerFactory,
    authority: Authority,
    server: IssuedCertificate,
    files: Path,
    accepted: bool,
) -> None:
    rest = PLUGINS.format(folder=files).replace(
        "[plugins.vmq_acl]", f"accept_certificates = {str(accepted).lower()}\n[plugins.vmq_acl]"
    )
    options = tls(
        server, cafile=authority.cafile, require_certificate=True, use_identity_as_username=True
    )
    broker = start({"tls": options}, rest=rest)
    lamp = authority.issue("alice")
    with Client(broker, None, cafile=authority.cafile, certificate=lamp) as client:
        assert client.code == (ACCEPTED if accepted else BAD_CREDENTIALS)
        if accepted:
            assert client.subscribe("news/#", "#") == [1, REFUSED]


def test_graphite_gets_the_brokers_figures(start: ListenerFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as graphite:
        graphite.settimeout(TIMEOUT)
        port = graphite.getsockname()[1]
        rest = f'[plugins.vmq_graphite]\nhost = "127.0.0.1"\nport = {port}\ninterval = 0.1\n'
        start({"tcp": TCP}, rest=rest)
        connection, _ = graphite.accept()
        with connection, connection.makefile("rb") as lines:
            line = next(each for each in lines if b".mqtt.publish.received " in each)
    assert re.fullmatch(rb"vmq\.[\w-]+\.mqtt\.publish\.received 0 \d+\n", line)
