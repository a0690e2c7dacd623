"""New certificates and revocation lists while connections go on."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.byte_streams import SocketStream
from tests.support.streams import connect_tcp, connect_tls, tls_wire
from tests.support.until import until
from tests.support.wire import Wire, connect_packet
from vmq.broker import Broker
from vmq.config.options import BrokerOptions, Config, ListenerOptions
from vmq.listeners import renewing
from vmq.listeners.listener import Listener
from vmq.testing.authority import Authority, IssuedCertificate


@asynccontextmanager
async def serving(
    tmp_path: Path, server: IssuedCertificate, **options: Any
) -> AsyncIterator[Broker]:
    listener = ListenerOptions(
        url="tls://127.0.0.1:0",
        certfile=str(server.certfile),
        keyfile=str(server.keyfile),
        **options,
    )
    data = BrokerOptions(data_dir=str(tmp_path / "data"))
    async with Broker(Config(broker=data, listeners={"tls": listener})) as broker:
        yield broker


def shown(url: str, authority: Authority) -> int:
    """The serial number of the certificate that a listener shows."""
    with connect_tls(url, authority.client_context()) as sock:
        certificate = sock.getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


async def test_connections_outlive_a_reload_that_new_ones_notice(
    tmp_path: Path, authority: Authority, server: IssuedCertificate
) -> None:
    async with serving(tmp_path, server) as broker:
        (url,) = broker.addresses

        def traffic() -> None:
            for number in range(200):
                wire.publish("a", b"%d" % number, qos=1)
                wire.acknowledge(wire.expect_publish("a", b"%d" % number, qos=1))

        wire = await asyncio.to_thread(tls_wire, url, authority.client_context())
        with wire:
            await asyncio.to_thread(wire.connect, "stays")
            await asyncio.to_thread(wire.subscribe, ("a", 1))
            busy = asyncio.create_task(asyncio.to_thread(traffic))
            serials = {server.certificate.serial_number}
            for _ in range(5):
                new = authority.issue("localhost", ["localhost"])
                assert broker.reload_certificates()
                found = await asyncio.to_thread(shown, url, authority)
                assert found == new.certificate.serial_number
                serials.add(found)
            assert len(serials) == 6
            await busy
            await asyncio.to_thread(wire.disconnect)


async def test_a_broken_file_changes_nothing_and_says_so(
    tmp_path: Path,
    authority: Authority,
    server: IssuedCertificate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vmq.listeners")
    async with serving(tmp_path, server) as broker:
        (url,) = broker.addresses
        good = server.certfile.read_bytes()
        for broken in (b"", good[:100], authority.cafile.read_bytes()):
            server.certfile.write_bytes(broken)
            caplog.clear()
            assert not broker.reload_certificates()
            (record,) = caplog.records
            assert record.levelno == logging.ERROR
            assert "kept the old certificates listener=tls" in record.getMessage()
            assert str(server.certfile) in record.getMessage()
            (reason,) = broker.condition().degraded
            assert reason.startswith("listener tls keeps its old certificates: ")
            assert str(server.certfile) in reason
            assert await broker.followed() == [reason]
            found = await asyncio.to_thread(shown, url, authority)
            assert found == server.certificate.serial_number
        server.certfile.unlink()
        assert not broker.reload_certificates()
        server.certfile.write_bytes(good)
        assert broker.reload_certificates()
        assert not broker.condition().degraded


async def test_changed_files_are_noticed_by_themselves_and_others_left_alone(
    tmp_path: Path,
    authority: Authority,
    server: IssuedCertificate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "vmq.listeners")
    monkeypatch.setattr(renewing, "INTERVAL", 0.01)
    async with serving(tmp_path, server) as broker:
        (url,) = broker.addresses
        await asyncio.to_thread(shown, url, authority)
        listener = broker.listeners["tls"]
        assert isinstance(listener, Listener)
        listener.reload_changed_certificates()
        assert "loaded certificates" not in caplog.text
        new = authority.issue("localhost", ["localhost"]).certificate.serial_number
        async with asyncio.timeout(30):
            while await asyncio.to_thread(shown, url, authority) != new:
                pass


async def test_health_names_what_has_expired_until_it_is_replaced(
    tmp_path: Path,
    authority: Authority,
    server: IssuedCertificate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(renewing, "INTERVAL", 0.01)
    async with serving(tmp_path, server) as broker:

        def is_named() -> bool:
            line = f"listener tls: certfile: {server.certfile}: the certificate CN=localhost,"
            return any(each.startswith(line) for each in broker.condition().degraded)

        authority.issue("localhost", ["localhost"], expired=True)
        await until(is_named)
        authority.issue("localhost", ["localhost"])
        await until(lambda: not is_named())
    assert caplog.text.count("expired on") == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_who_is_revoked_does_not_come_back_not_even_by_resuming(
    tmp_path: Path, authority: Authority, server: IssuedCertificate, version: ssl.TLSVersion
) -> None:
    lost = authority.issue("lost")
    context = authority.client_context(lost)
    context.minimum_version = context.maximum_version = version

    def visit(url: str, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
        with context.wrap_socket(
            connect_tcp(url), server_hostname="localhost", session=session
        ) as sock:
            wire = Wire(SocketStream(sock))
            wire.connect("lost")
            return sock.session, bool(sock.session_reused)

    def refused(url: str, session: ssl.SSLSession | None) -> bool:
        try:
            sock = context.wrap_socket(
                connect_tcp(url), server_hostname="localhost", session=session
            )
            with sock:
                sock.sendall(connect_packet("lost"))
                return sock.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True

    options = {"cafile": str(authority.cafile), "crlfile": str(authority.crlfile)}
    async with serving(tmp_path, server, require_certificate=True, **options) as broker:
        (url,) = broker.addresses
        session, reused = await asyncio.to_thread(visit, url, None)
        session, reused = await asyncio.to_thread(visit, url, session)
        assert reused
        authority.revoke(lost)
        assert broker.reload_certificates()
        assert await asyncio.to_thread(refused, url, session)
        assert await asyncio.to_thread(refused, url, None)
