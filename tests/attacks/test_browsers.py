"""Web pages that use the browsers of those who may reach a broker."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.listeners.conftest import ListenerFactory, factory, tls
from tests.support.guarded import line_of
from tests.support.streams import websocket_to
from tests.support.wire import connect_packet
from tests.vmq.cli.program import here
from vmq.testing.authority import Authority
from vmq.testing.process import BrokerProcess

EVIL = "https://evil.example"
ACCEPTED = b"\x20\x02\x00\x00"
NOT_AUTHORISED = b"\x20\x02\x00\x05"
WS = {"url": "ws://127.0.0.1:0/mqtt"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[ListenerFactory]:
    with ExitStack() as stack:
        yield factory(stack, tmp_path)


def upgrade(url: str, **headers: str) -> tuple[int, str]:
    """The status and the text that answer an upgrade with these headers."""
    parts = urlsplit(url)
    with closing(HTTPConnection(str(parts.hostname), parts.port or 80, timeout=30)) as connection:
        connection.putrequest("GET", parts.path, skip_host="Host" in headers)
        common = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Protocol": "mqtt",
        }
        for name, value in {**common, **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, "" if answer.status == 101 else answer.read().decode()


def connack(url: str, origin: str | None, user: str | None = None, **options: Any) -> bytes:
    """What answers the CONNECT of a page, which has the user's password if there is one."""
    with websocket_to(url, origin=origin, **options) as websocket:
        websocket.send(connect_packet("page", username=user, password=user))
        answer = websocket.recv()
        assert isinstance(answer, bytes)
        return answer


def guarded(start: ListenerFactory, folder: Path, **options: object) -> BrokerProcess:
    """A broker with passwords, whose loopback would be open without."""
    (folder / "passwd").write_text(line_of("bob", "bob"))
    rest = f'[plugins.vmq_passwd]\nfile = "{folder / "passwd"}"'
    return start({"ws": {**WS, **options}}, folder / "data", rest)


def test_a_name_that_was_made_to_point_here_is_refused(start: ListenerFactory) -> None:
    broker = start({"ws": WS, "http": {"url": "http://127.0.0.1:0"}})
    port = urlsplit(broker.ws).port
    host = f"evil.example:{port}"
    status, text = upgrade(broker.ws, Host=host, Origin=f"http://{host}")
    assert (status, text.partition(" is not")[0]) == (421, f"Host '{host}'")
    broker.wait_log(r"Host 'evil\.example:\d+' is not this machine's: .*allowed_origins")
    assert upgrade(broker.ws, Host=host)[0] == 421
    assert upgrade(broker.ws, Host=f"localhost:{port}")[0] == 101
    with urlopen(f"{broker.http}/metrics", timeout=30) as answer:
        assert b"\nws_page_refused_total 2.0\n" in answer.read()


def test_pages_that_are_listed_come_in_and_a_reload_changes_that(
    start: ListenerFactory, tmp_path: Path
) -> None:
    app = "https://app.example"
    broker = start({"ws": {**WS, "allowed_origins": [app]}})
    assert connack(broker.ws, app) == ACCEPTED
    assert upgrade(broker.ws, Host="app.example", Origin=app)[0] == 101
    assert upgrade(broker.ws, Origin=EVIL)[0] == 403
    file = tmp_path / "vmq.toml"
    file.write_text(file.read_text().replace(app, EVIL))
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_log('reloaded changed="listeners.ws.allowed_origins"')
    assert connack(broker.ws, EVIL) == ACCEPTED
    assert upgrade(broker.ws, Origin=app)[0] == 403


def test_the_check_follows_the_plugin_that_knows_clients(
    start: ListenerFactory, tmp_path: Path
) -> None:
    """A page that was let through to type a password is not let in without one when the plugin is gone."""
    broker = guarded(start, tmp_path)
    with websocket_to(broker.ws, origin=EVIL) as early:
        folder = ("--data-dir", str(broker.data_dir))
        assert here("plugin", "disable", "vmq_passwd", *folder).code == 0
        assert connack(broker.ws, None) == ACCEPTED
        assert upgrade(broker.ws, Origin=EVIL)[0] == 403
        early.send(connect_packet("page", username="bob", password="bob"))
        assert early.recv() == NOT_AUTHORISED
        assert here("plugin", "enable", "vmq_passwd", *folder).code == 0
    assert connack(broker.ws, EVIL, "bob") == ACCEPTED


def test_a_certificate_is_nothing_that_a_user_types(start: ListenerFactory, tmp_path: Path) -> None:
    """The browser sends it for every page."""
    authority = Authority(tmp_path / "ca")
    server, alice = authority.issue("localhost", ["localhost"]), authority.issue("alice")
    options = {"cafile": authority.cafile, "require_certificate": True}
    broker = start({"wss": {**tls(server, "wss", **options), "use_identity_as_username": True}})
    url = broker.urls[0].replace("127.0.0.1", "localhost")
    context = authority.client_context(alice)
    assert connack(url, None, ssl=context) == ACCEPTED
    with pytest.raises(Exception, match="403"):
        connack(url, EVIL, ssl=context)
    broker.wait_log(f"Origin '{EVIL}' is not in listeners.wss.allowed_origins")
