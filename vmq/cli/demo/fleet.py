"""The devices of the demo and who watches them: real connections, and a count of what arrives."""

import asyncio
import json
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vmq.cli.demo.client import KEEP_ALIVE, Address, DurableClient

#: Where the devices are: the name of each site.
SITES: Final = (
    "Harbour",
    "Old Mill",
    "North Gate",
    "Airport",
    "Brewery",
    "Greenhouse",
    "Stadium",
    "Power Plant",
    "University",
    "Lighthouse",
)
#: Seconds between two readings of a device.
PAUSE: Final = 1.0
#: Every so many devices one overheats, for a while in each period (seconds); others stay around NORMAL degrees.
FAULTY: Final = 40
PERIOD: Final = 60.0
NORMAL: Final = 21.0
#: Alerts that are kept for the page.
KEPT: Final = 8


class Device:
    """One device: a site, a name, and a temperature of its own."""

    def __init__(self, index: int, address: Address, chance: random.Random) -> None:
        self.index = index
        self.client = DurableClient(f"device-{index}", address)
        site = index % len(SITES)
        self.topic = f"sensors/site-{site:02d}/device-{index:03d}/temp"
        self.is_faulty = index % FAULTY == FAULTY - 1
        self.normal = NORMAL + chance.uniform(-2, 2)
        #: Readings so far.
        self.sent = 0

    def value(self, elapsed: float, noise: float) -> float:
        """The temperature so many seconds after the start: what is faulty begins hot."""
        heat = 13.0 * max(0.0, math.cos(2 * math.pi * elapsed / PERIOD)) if self.is_faulty else 0.0
        return round(self.normal + heat + noise, 2)

    def read(self, elapsed: float, noise: float, now: float) -> None:
        """Makes a reading and publishes it, numbered."""
        self.sent += 1
        reading = {"value": self.value(elapsed, noise), "time": round(now, 3), "number": self.sent}
        self.client.publish(self.topic, json.dumps(reading).encode())


@dataclass
class Alert:
    """An alert as it came over MQTT."""

    topic: str
    average: float
    at: float


class DemoTally:
    """What arrived of each device: the number of its last reading says what is lost, or came twice.

    One that leaves out numbers shows that those are lost, unless they come yet: for a client that moves off a dead node
    of a cluster, what waited there may come behind what is newer. What else is not above the last came again.
    """

    def __init__(self) -> None:
        self.received = 0
        #: Readings that were left out, by device and number.
        self.missing: set[tuple[int, int]] = set()
        self.repeated = 0
        #: By index of a device: its last number and value.
        self.last: dict[int, tuple[int, float]] = {}
        #: Those that were heard since the last look.
        self.fresh: dict[int, float] = {}

    @property
    def lost(self) -> int:
        """Readings that newer ones came without."""
        return len(self.missing)

    def take(self, index: int, number: int, value: float) -> None:
        """A reading has arrived."""
        before = self.last.get(index, (0, 0.0))[0]
        if number <= before:
            if (index, number) in self.missing:
                self.missing.remove((index, number))
                self.received += 1
            else:
                self.repeated += 1
            return
        self.received += 1
        self.missing.update((index, each) for each in range(before + 1, number))
        self.last[index] = (number, value)
        self.fresh[index] = value

    def heard(self) -> dict[int, float]:
        """Who was heard since the last look, with the values."""
        found, self.fresh = self.fresh, {}
        return found


class Fleet:
    """All devices, and who watches them.

    Args:
        count: of devices.
        addresses: of the brokers, by turns; asked for with the number of a client.
        seed: what the devices do is the same for the same seed, but for the time.
    """

    def __init__(self, count: int, addresses: Callable[[int], Address], seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.devices = [Device(index, addresses(index), self.chance) for index in range(count)]
        self.tally = DemoTally()
        self.alerts: deque[Alert] = deque(maxlen=KEPT)
        self.alert_count = 0
        self.watch = DurableClient(
            "watch", addresses(count), ("sensors/#", "alerts/#"), self.on_message
        )
        self.began = time.time()
        #: False: no device reads any more.
        self.is_reading = True

    @property
    def sent(self) -> int:
        """Readings that devices have made."""
        return sum(each.sent for each in self.devices)

    @property
    def up(self) -> int:
        """Devices that are connected."""
        return sum(each.client.is_up for each in self.devices)

    def on_message(self, topic: str, payload: bytes) -> None:
        """Something has arrived."""
        said: dict[str, Any] = json.loads(payload)
        if topic.startswith("alerts/"):
            self.alert_count += 1
            self.alerts.append(Alert(topic, said["average"], time.time()))
            return
        self.tally.take(
            int(topic.split("/")[2].removeprefix("device-")), said["number"], said["value"]
        )

    async def run(self) -> None:
        """Has all of them be connected and read, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch.run())
            for each in self.devices:
                group.create_task(each.client.run())
            await self._until_watched()
            group.create_task(self._read())
            group.create_task(self._stay())

    async def _until_watched(self) -> None:
        """Readings begin once somebody would miss them."""
        while not self.watch.is_subscribed:  # noqa: ASYNC110 - once, at the start
            await asyncio.sleep(0.05)

    async def _read(self) -> None:
        """Each device has its turn within a period."""
        self.began = time.time()
        count = len(self.devices)
        turn = 0
        while self.is_reading:
            now = time.time()
            due = (now - self.began) / PAUSE * count
            if due - turn > count:
                turn = int(due) - count  # the machine was away: what was not read, was not
            while turn < due:
                each = self.devices[turn % count]
                each.read(now - self.began, self.chance.gauss(0, 0.3), now)
                turn += 1
            await asyncio.sleep(0.02)

    async def _stay(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE / 2)
            for client in (self.watch, *(each.client for each in self.devices)):
                client.ping()
