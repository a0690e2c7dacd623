"""One connection to the far broker: opened, subscribed, kept alive."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vmq_hooks import Subscription
from vmq_hooks.tls import client_context

from vmq_bridge import packets
from vmq_bridge.config import BridgeConfig
from vmq_bridge.packets import Packet, PacketError

#: CONNACK return codes (MQTT 3.1.1, table 3.1).
REFUSALS: Final = {
    1: "it does not serve this protocol version",
    2: "it does not take this client id",
    3: "it is not available",
    4: "bad user name or password",
    5: "not authorised",
}
#: Packet ids of SUBSCRIBE and UNSUBSCRIBE; nothing else is on its way then.
_PACKET_ID: Final = 0xFFFF
#: Filters in one SUBSCRIBE.
_AT_A_TIME: Final = 50
#: Seconds that the far broker has to take what is unsent when a connection ends.
_FAREWELL: Final = 1.0


class ConnectionRefused(ConnectionError):  # noqa: N818 - what a CONNACK says
    """The far broker answered CONNECT with a code other than 0."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def tls_context(config: BridgeConfig, folder: Path) -> ssl.SSLContext | None:
    """What the far broker's certificate is checked with; None without TLS. Reads files.

    Raises:
        TlsFileError: a file cannot be used.
    """
    if not config.secure:
        return None
    files = (config.cafile, config.certfile, config.keyfile)
    context = client_context(*(None if each is None else folder / each for each in files))
    context.check_hostname = not config.insecure
    return context


class Remote:
    """An open connection, after CONNACK. Errors of it are ConnectionErrors."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, config: BridgeConfig
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limit = config.max_packet_size
        self._keepalive = config.keepalive
        self._heard = True
        self._answer: asyncio.Future[Packet] | None = None
        #: The far broker knows us from before; with MQTT 3.1 it is taken to.
        self.session_present = False

    @classmethod
    async def open(
        cls, config: BridgeConfig, client_id: str, tls: ssl.SSLContext | None, *, bridge: bool
    ) -> "Remote":
        """Connects; `bridge` tells the far broker what we are.

        Raises:
            ConnectionRefused: the far broker does not want us.
            OSError: no connection came about.
        """
        host, port = config.address
        async with asyncio.timeout(config.connect_timeout):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            remote = cls(reader, writer, config)
            try:
                await remote._introduce(config, client_id, bridge)
            except BaseException:
                remote.abort()
                raise
        return remote

    async def _introduce(self, config: BridgeConfig, client_id: str, bridge: bool) -> None:
        self._writer.write(
            packets.connect(
                client_id,
                level=config.protocol_version,
                bridge=bridge,
                clean_session=config.clean_session,
                keepalive=config.keepalive,
                username=config.username,
                password=config.password,
            )
        )
        try:
            packet = await self.read()
        except PacketError:
            raise
        except ConnectionError:
            # Not taken for code 1: a proxy whose broker is away does the same, and would cost us `try_private`.
            hint = " (try_private = false may help)" if bridge else ""
            raise ConnectionError(f"it closed the connection before CONNACK{hint}") from None
        if packet.kind != packets.CONNACK or len(packet.body) != 2:
            raise PacketError("it does not speak MQTT")
        code = packet.body[1]
        if code:
            raise ConnectionRefused(code, REFUSALS.get(code, f"refused with code {code}"))
        # In MQTT 3.1 the bit of session present is reserved. Taken for gone each time, a session that is there would
        # have what waits in it published twice; what if it is gone, see `Earlier`.
        is_present = config.assumes_session or packet.body[0] & 1 != 0
        self.session_present = is_present and not config.clean_session

    # Packets

    async def read(self) -> Packet:
        """The next packet."""
        packet = await packets.read_packet(self._reader, self._limit)
        self._heard = True
        return packet

    def send(self, packet: bytes) -> None:
        """Writes a packet; `flush` waits until the connection takes more."""
        self._writer.write(packet)

    async def flush(self) -> None:
        """Waits while too much is unsent."""
        await self._writer.drain()

    async def subscribe(self, wanted: Sequence[Subscription]) -> None:
        """Subscribes, while somebody reads and hands SUBACKs to `answered`.

        Raises:
            ConnectionError: the far broker refused a filter; the text names it.
        """
        for start in range(0, len(wanted), _AT_A_TIME):
            part = wanted[start : start + _AT_A_TIME]
            codes = (await self._ask(packets.subscribe(_PACKET_ID, part))).body[2:]
            if len(codes) != len(part):
                raise PacketError(f"it answered {len(part)} subscriptions with {len(codes)} codes")
            for each, code in zip(part, codes, strict=True):
                if code > 2:
                    raise ConnectionError(f"it refused the subscription to {each.topic_filter!r}")

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribes, while somebody reads and hands UNSUBACKs to `answered`."""
        for start in range(0, len(filters), _AT_A_TIME):
            await self._ask(packets.unsubscribe(_PACKET_ID, filters[start : start + _AT_A_TIME]))

    def answered(self, packet: Packet) -> None:
        """A SUBACK or UNSUBACK has come."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(packet)

    async def _ask(self, request: bytes) -> Packet:
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    # Life

    async def keep_alive(self) -> None:
        """Pings, for ever.

        Raises:
            ConnectionError: the far broker has been silent for the keep-alive time.
        """
        while True:
            self._heard = False
            self.send(packets.PINGREQ_BYTES)
            await asyncio.sleep(self._keepalive / 2)
            if self._heard:
                continue
            await asyncio.sleep(self._keepalive / 2)
            if not self._heard:
                raise ConnectionError(f"it has been silent for {self._keepalive} s")

    async def close(self) -> None:
        """Ends the connection in good order, or in the end without; returns when the socket is closed.

        A far broker that has stalled would keep it, and what it does not take, for ever.
        """
        if not self._writer.is_closing():
            self._writer.write(packets.DISCONNECT_BYTES)
            self._writer.close()
        lost = asyncio.ensure_future(self._writer.wait_closed())
        try:
            await asyncio.wait({lost}, timeout=_FAREWELL)
        finally:
            if not lost.done():
                self.abort()
        await asyncio.gather(lost, return_exceptions=True)

    def abort(self) -> None:
        """Ends the connection now."""
        self._writer.transport.abort()
