"""The simulated devices of `vmq demo`, and the client that waits for alerts: real connections, in one process."""

import heapq
import json
import math
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from vmq.bench.load.client import LoadClient
from vmq.bench.load.loop import Loop
from vmq.bench.load.transport import LoadEndpoint
from vmq.bench.stage import need_files
from vmq.mqtt import encoder

DEVICES_A_SITE: Final = 20
#: Seconds between two readings of a device.
PAUSE: Final = 1.0
#: Every so many devices one overheats, for a while in each period (seconds); others stay around NORMAL degrees.
FAULTY: Final = 40
PERIOD: Final = 60.0
NORMAL: Final = 21.0
#: The part of readings that arrive late, and how late at most (seconds).
LATE: Final = 0.03
LATEST: Final = 15.0
#: Alerts that are kept for the screen.
KEPT: Final = 8

_PUBLISH: Final = 3
_PUBACK: Final = 0x40


class Device(LoadClient):
    """One device: a site, a name, and a temperature of its own."""

    def __init__(
        self, loop: Loop, endpoint: LoadEndpoint, index: int, chance: random.Random
    ) -> None:
        site, number = divmod(index, DEVICES_A_SITE)
        super().__init__(loop, endpoint, f"device-{index}")
        self.topic = f"sensors/site-{site:02d}/device-{number:02d}/temp".encode()
        self.is_faulty = index % FAULTY == FAULTY - 1
        self.normal = NORMAL + chance.uniform(-2, 2)
        self.acknowledged = 0
        self.sent = 0

    def value(self, elapsed: float, noise: float) -> float:
        """The temperature so many seconds after the start: what is faulty begins hot."""
        heat = 13.0 * max(0.0, math.cos(2 * math.pi * elapsed / PERIOD)) if self.is_faulty else 0.0
        return round(self.normal + heat + noise, 2)

    def publish(self, payload: bytes) -> None:
        """Sends a reading at QoS 1."""
        if self.is_up:
            packet_id = self.sent % 65_535 + 1
            self.sent += 1
            self.write(encoder.publish(self.topic, payload, 1, packet_id, retain=False, dup=False))

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        if head == _PUBACK:
            self.acknowledged += 1
        else:
            super().on_packet(head, packet, body)


@dataclass
class Alert:
    """An alert as it came over MQTT."""

    topic: str
    average: float
    #: Start and end of its window, as Spark writes times.
    start: str
    end: str


class Watch(LoadClient):
    """Subscribes to the alerts."""

    def __init__(self, loop: Loop, endpoint: LoadEndpoint) -> None:
        super().__init__(loop, endpoint, "watch")
        self.count = 0
        self.last: deque[Alert] = deque(maxlen=KEPT)

    def on_up(self) -> None:
        self.subscribe("alerts/#", qos=1)

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        if head >> 4 != _PUBLISH:
            super().on_packet(head, packet, body)
            return
        end = body + 2 + int.from_bytes(packet[body : body + 2], "big")
        topic = packet[body + 2 : end].decode()
        if head & 6:
            self.write(encoder.PUBACK_HEAD + packet[end : end + 2])
            end += 2
        said: dict[str, Any] = json.loads(packet[end:])
        self.count += 1
        self.last.append(Alert(topic, said["average"], said["start"], said["end"]))


class Field:
    """All devices, and the watch. `step` keeps them going.

    Args:
        seed: what the devices do is the same for the same seed, but for the time.
    """

    def __init__(self, endpoint: LoadEndpoint, count: int, seed: int = 1) -> None:
        need_files(count)
        self.loop = Loop()
        self.chance = random.Random(seed)
        self.devices = [Device(self.loop, endpoint, i, self.chance) for i in range(count)]
        self.watch = Watch(self.loop, endpoint)
        self.began = time.time()
        #: What is to be sent: when, by which device, and the payload if it is a late one.
        self.due = [(self.began + index / count * PAUSE, index, b"") for index in range(count)]
        heapq.heapify(self.due)
        for client in (self.watch, *self.devices):
            client.open()

    @property
    def sent(self) -> int:
        """Readings that the broker has acknowledged."""
        return sum(each.acknowledged for each in self.devices)

    @property
    def problem(self) -> str:
        """Why a connection ended, or what the broker sent that it must not; empty: nothing did."""
        return self.loop.first_problem

    def step(self, seconds: float) -> None:
        """Sends what is due within some seconds, and serves the connections until then."""
        end = time.time() + seconds
        while (now := time.time()) < end:
            while self.due[0][0] <= now:
                self._send(*heapq.heappop(self.due), now)
            self.loop.step(max(0.0, min(end, self.due[0][0]) - now))

    def _send(self, due: float, index: int, payload: bytes, now: float) -> None:
        device = self.devices[index]
        if payload:
            device.publish(payload)
            return
        value = device.value(now - self.began, self.chance.gauss(0, 0.3))
        reading = json.dumps({"value": value, "time": round(now, 3)}).encode()
        if self.chance.random() < LATE:
            heapq.heappush(self.due, (now + self.chance.uniform(1, LATEST), index, reading))
        else:
            device.publish(reading)
        # Behind after a pause of the machine, it does not send all at once.
        heapq.heappush(self.due, (max(due + PAUSE, now), index, b""))

    def close(self) -> None:
        """Ends all connections."""
        for client in (self.watch, *self.devices):
            client.close()
        self.loop.close()
