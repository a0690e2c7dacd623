"""One round: sessions, takeovers, queues, wills and retained messages come, and go again."""

from typing import Final, Protocol

from tests.conformance.websocket_wire import open_websocket
from tests.support.wire import Will, Wire

SLEEPERS: Final = 6
BACKLOG: Final = 20
GUESTS: Final = 30
WILLS: Final = 6
RETAINED: Final = 20


class Addresses(Protocol):
    """Where a broker is."""

    @property
    def tcp(self) -> tuple[str, int]: ...

    @property
    def ws(self) -> str: ...


class Round:
    """The clients of one round. Names are its own: what a name leaves behind is never used again."""

    def __init__(self, broker: Addresses, number: int) -> None:
        self.broker = broker
        self.name = f"soak-{number}"

    def play(self) -> None:
        """Everything, in turn; every message that is due is waited for."""
        self.sleep_and_wake()
        self.come_and_go()
        self.leave_wills()
        self.keep_and_clear()

    def client(
        self, part: str, number: int, *, clean: bool = True, will: Will | None = None
    ) -> Wire:
        """A connected client; each second one comes by WebSocket."""
        if number % 2:
            wire, _ = open_websocket(self.broker.ws)
        else:
            wire = Wire.connect_tcp(self.broker.tcp)
        wire.connect(f"{self.name}-{part}-{number}", clean=clean, will=will)
        return wire

    def sleep_and_wake(self) -> None:
        """Durable sessions whose queues fill while they are away, and drain into a taken-over client."""
        topic = f"{self.name}/backlog"
        for number in range(SLEEPERS):
            with self.client("sleeper", number, clean=False) as wire:
                wire.subscribe((topic, number % 3), (f"{self.name}/+/x", 1))
                wire.disconnect()
        with self.client("writer", 0) as writer:
            for count in range(BACKLOG):
                writer.publish(topic, b"%d" % count, qos=count % 3)
        for number in range(SLEEPERS):
            first = self.client("sleeper", number, clean=False)
            with first, self.client("sleeper", number, clean=False) as wire:
                self.drain(wire, BACKLOG, number % 3)
                wire.unsubscribe(topic)
            with self.client("sleeper", number, clean=True) as wire:
                wire.disconnect()

    def drain(self, wire: Wire, count: int, granted: int) -> None:
        """Takes and acknowledges the whole backlog. What the first client got may come again."""
        wanted = [b"%d" % each for each in range(count) if min(each % 3, granted)]
        found: list[bytes] = []
        while len(set(found)) < len(wanted):
            packet = wire.expect_publish()
            wire.acknowledge(packet)
            found.append(packet.payload)
        assert set(found) == set(wanted)

    def come_and_go(self) -> None:
        """Clients that subscribe to this and that, publish to each other, and leave or are cut off."""
        with self.client("host", 0) as host:
            host.subscribe((f"{self.name}/guests/+", 1))
            for number in range(GUESTS):
                with self.client("guest", number) as wire:
                    filters = [(f"{self.name}/{number}/{each}/#", each % 3) for each in range(6)]
                    wire.subscribe(*filters, ("$share/soak/" + self.name, 1))
                    wire.publish(f"{self.name}/{number}/1/x", b"own")
                    wire.expect_publish(payload=b"own")
                    wire.publish(f"{self.name}/guests/{number}", b"hello", qos=1)
                    host.acknowledge(host.expect_publish(payload=b"hello"))
                    wire.unsubscribe(*(name for name, _ in filters[:3]))
                    if number % 3:
                        wire.disconnect()

    def leave_wills(self) -> None:
        """Clients that are cut off, and a heir."""
        with self.client("heir", 1) as heir:
            heir.subscribe((f"{self.name}/will", 2))
            for number in range(WILLS):
                will = Will(f"{self.name}/will", b"%d" % number, number % 3)
                self.client("testator", number, will=will).close()
            for _ in range(WILLS):
                heir.acknowledge(heir.expect_publish(f"{self.name}/will"))

    def keep_and_clear(self) -> None:
        """Retained messages, seen by who comes later, and cleared."""
        with self.client("keeper", 0) as keeper, self.client("reader", 1) as reader:
            for number in range(RETAINED):
                keeper.publish(
                    f"{self.name}/kept/{number}", bytes(100), qos=number % 3, retain=True
                )
            reader.subscribe((f"{self.name}/kept/#", 1))
            for _ in range(RETAINED):
                reader.acknowledge(reader.expect_publish(retain=True))
            reader.unsubscribe(f"{self.name}/kept/#")
            for number in range(RETAINED):
                keeper.publish(f"{self.name}/kept/{number}", b"", retain=True)
