"""MQTT.js in a real browser, over secure WebSocket."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.listeners.browser import ELSEWHERE, Page, PageError, chromium, served
from tests.listeners.conftest import ListenerFactory, tls
from tests.support.node import installed_modules
from tests.support.wire import Wire
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

PAGE = Path(__file__).with_name("page.html")


@pytest.fixture
def page(tmp_path: Path, server: IssuedCertificate) -> Iterator[Page]:
    """The page, open in a browser that trusts the server's certificate."""
    web = tmp_path / "web"
    web.mkdir()
    shutil.copy(PAGE, web / "index.html")
    shutil.copy(installed_modules() / "mqtt" / "dist" / "mqtt.min.js", web)
    with served(web) as address, chromium(tmp_path / "browser", server) as browser:
        browser.address = address + "/"
        browser.open(browser.address)
        yield browser


def wss(broker: BrokerProcess, number: int = 0) -> str:
    """Where a browser reaches the broker: by the name in the certificate."""
    urls = [url for url in broker.urls if url.startswith("wss://")]
    return urls[number].replace("127.0.0.1", "localhost")


def messages(topic: str, text: str) -> list[list[object]]:
    """One at each QoS, as the page shows them."""
    return [[f"{topic}/{qos}", text, qos, False] for qos in range(3)]


def publish_each(wire: Wire, topic: str, text: str) -> None:
    for qos in range(3):
        wire.publish(f"{topic}/{qos}", text.encode(), qos=qos)


def test_mqttjs_in_a_browser(
    start: ListenerFactory, server: IssuedCertificate, page: Page, tmp_path: Path
) -> None:
    """Every QoS there and back, and a durable session over the broker's restart."""
    listeners: dict[str, dict[str, object]] = {
        "tcp": {"url": "tcp://127.0.0.1:0"},
        # Its page comes back to this address when the broker is there again.
        "wss": tls(server, "wss", url=f"wss://127.0.0.1:{lasting_port()}/mqtt"),
    }
    broker = start(listeners, tmp_path / "data")
    assert page.run("open_", wss(broker), "browser") is False
    assert page.run("subscribe", "to/#", 2) == 2
    with Wire.connected(broker.tcp, "other") as wire:
        wire.subscribe(("from/#", 2))
        publish_each(wire, "to", "hello")
        assert sorted(page.run("take", 3)) == messages("to", "hello")
        for qos in range(3):
            page.run("publish", f"from/{qos}", "grüße", qos, False)
            wire.acknowledge(wire.expect_publish(f"from/{qos}", "grüße".encode(), qos=qos))
        page.run("publish", "from/kept", "x", 1, True)
        wire.acknowledge(wire.expect_publish("from/kept", b"x"))

    assert broker.terminate() == 0
    assert page.run("closed")
    broker = start(listeners, tmp_path / "data")
    with Wire.connected(broker.tcp, "other") as wire:
        publish_each(wire, "to", "while you were away")
        assert page.run("reconnect") is True
        # QoS 0 is not kept for who is away.
        assert sorted(page.run("take", 2)) == messages("to", "while you were away")[1:]
        publish_each(wire, "to", "again")
        assert sorted(page.run("take", 3)) == messages("to", "again")
        assert page.run("end")
    assert "Traceback" not in broker.stderr_text()


def test_a_browser_refuses_a_certificate_that_it_does_not_trust(
    start: ListenerFactory, server: IssuedCertificate, page: Page, tmp_path: Path
) -> None:
    """So the test above did go through the handshake with the right one."""
    other = Authority(tmp_path / "other").issue("localhost", ["localhost"])
    broker = start({"good": tls(server, "wss"), "other": tls(other, "wss")})
    with pytest.raises(PageError, match="closed"):
        page.run("open_", wss(broker, 1), "browser")
    assert page.run("open_", wss(broker, 0), "browser") is False
    assert page.run("end")


def test_a_foreign_page_gets_in_neither_by_our_name_nor_by_its_own(
    start: ListenerFactory, page: Page
) -> None:
    """A page of this machine does, by the same listener."""
    broker = start({"ws": {"url": "ws://127.0.0.1:0/mqtt"}})
    assert page.run("open_", broker.ws, "browser") is False
    assert page.run("end")
    page.open(page.address.replace("127.0.0.1", ELSEWHERE))
    with pytest.raises(PageError, match="closed"):
        page.run("open_", broker.ws, "browser")
    broker.wait_log(rf"Origin 'http://{ELSEWHERE}:\d+' is not in listeners\.ws\.allowed_origins")
    with pytest.raises(PageError, match="closed"):
        page.run("open_", broker.ws.replace("127.0.0.1", ELSEWHERE), "browser")
    broker.wait_log(rf"Host '{ELSEWHERE}:\d+' is not this machine's")
