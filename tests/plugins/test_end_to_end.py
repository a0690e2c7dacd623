"""Passwords and rights as clients meet them, over TCP and TLS."""

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from vmq_passwd import editing

from tests.listeners.conftest import ListenerFactory, factory, start, tls
from tests.support.streams import tls_wire
from tests.support.wire import CONNACK, Wire, connect_packet, publish_packet
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess

__all__ = ["start"]

TIMEOUT = 60.0
USERS = {"alice": "1", "bob": "2"}
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
        editing.add(folder / "passwd", name, password.encode())
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


ACCEPTED, BAD_CREDENTIALS, NOT_AUTHORISED = 0, 4, 5
REFUSED = 128


def login(
    broker: BrokerProcess,
    name: str | None,
    password: str | None = None,
    client_id: str = "",
    context: ssl.SSLContext | None = None,
) -> tuple[Wire, int]:
    """A client, and the return code of its CONNACK. Over TLS if there is a context."""
    if context is None:
        wire = Wire.connect_tcp(broker.tcp)
    else:
        wire = tls_wire(next(url for url in broker.urls if url.startswith("tls")), context)
    secret = USERS.get(name or "") if password is None else password
    wire.send(connect_packet(client_id, username=name, password=secret))
    return wire, wire.expect(CONNACK).return_code


def client(broker: BrokerProcess, name: str | None, **more: Any) -> Wire:
    wire, code = login(broker, name, **more)
    assert code == ACCEPTED
    return wire


def subscribe(wire: Wire, *filters: str) -> list[int]:
    return wire.subscribe(*((each, 1) for each in filters)).codes


def read(wire: Wire) -> tuple[str, bytes]:
    received = wire.expect_publish()
    wire.acknowledge(received)
    return received.topic, received.payload


@pytest.mark.parametrize("secure", [False, True])
def test_who_knows_the_password_gets_what_the_rules_grant(
    shared: BrokerProcess, authority: Authority, secure: bool
) -> None:
    context = authority.client_context() if secure else None
    for name, password, code in (
        ("alice", "2", BAD_CREDENTIALS),
        ("alice", "", BAD_CREDENTIALS),
        ("mallory", "1", BAD_CREDENTIALS),
        (None, None, NOT_AUTHORISED),
    ):
        wire, found = login(shared, name, password, context=context)
        wire.close()
        assert found == code, name
    with (
        client(shared, "alice", context=context) as alice,
        client(shared, "bob", client_id="lamp", context=context) as bob,
    ):
        asked = ("news/#", "#", "home/alice/#", "$share/g/news/1", "$share/g/#")
        assert subscribe(alice, *asked) == [1, REFUSED, REFUSED, 1, REFUSED]
        bob.publish("news/2", b"x", qos=1)
        assert read(alice) == ("news/2", b"x")
        bob.publish("of/lamp", qos=1)
        bob.ended_by(publish_packet("of/door", b"", qos=1, packet_id=9))
        alice.publish("home/alice/x", qos=1)
        alice.ended_by(publish_packet("news/2", b"", qos=1, packet_id=9))


def test_rules_change_under_traffic_and_nothing_is_lost(
    guarded: BrokerProcess, files: Path
) -> None:
    sent = 0
    with client(guarded, "alice") as alice, client(guarded, "bob") as bob:
        assert subscribe(alice, "news/#") == [1]
        for change in range(1, 4):
            (files / "acl").write_text(f"{ACL}user carol\ntopic {change}\n")
            while guarded.stderr_text().count("acl: new content is in force") < change:
                bob.publish("news/2", b"%d" % sent, qos=1)
                sent += 1
        assert [int(read(alice)[1]) for _ in range(sent)] == list(range(sent))


def test_passwords_alone_leave_topics_free(start: ListenerFactory, files: Path) -> None:
    broker = start({"tcp": TCP}, rest=f'[plugins.vmq_passwd]\nfile = "{files}/passwd"\n')
    with client(broker, "bob") as bob:
        assert subscribe(bob, "#") == [1]
        bob.publish("anything", qos=1)


def test_the_brokers_figures_are_messages(start: ListenerFactory) -> None:
    broker = start({"tcp": TCP}, rest="[plugins.vmq_systree]\ninterval = 0.1")
    with client(broker, None) as wire:
        subscribe(wire, "$SYS/+/mqtt/connect/received")
        topic, payload = read(wire)
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
    lamp = authority.client_context(authority.issue("alice"))
    wire, code = login(broker, None, context=lamp)
    with wire:
        assert code == (ACCEPTED if accepted else BAD_CREDENTIALS)
        if accepted:
            assert subscribe(wire, "news/#", "#") == [1, REFUSED]
    if not accepted:
        broker.wait_log('login refused .* user="alice" .*accept_certificates = true')


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
