"""A client that keeps to the standard: it sends again what is not acknowledged, in order, with its packet ids."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmq.clustering.messages.fronts import Step
from vmq.clustering.slots.words import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SEND,
    SEND_PUBCOMP,
    SEND_PUBREL,
    SUBSCRIBE,
    SUBSCRIBED,
)

WINDOW = 3


@dataclass
class Outgoing:
    """A message that the client publishes."""

    text: str
    is_released: bool
    since: int


@dataclass
class Client:
    """One client, of any number of connections after each other."""

    name: str
    #: At which it publishes; 0: it subscribes.
    qos: int
    topic_filter: str = ""
    number: int = 0
    node: str = ""
    is_ready: bool = False
    is_subscribed: bool = False
    has_subscribed: bool = False
    out: dict[int, Outgoing] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    sent: int = 0
    acknowledged: list[str] = field(default_factory=list)
    #: Steps from the first PUBLISH to the acknowledgement.
    waited: list[int] = field(default_factory=list)
    got: list[tuple[str, int]] = field(default_factory=list)

    def next_text(self) -> str:
        self.sent += 1
        return f"{self.name}-{self.sent}"

    def free_packet(self) -> int:
        return next(packet for packet in range(1, WINDOW + 2) if packet not in self.out)

    def on_present(self, is_present: bool) -> list[tuple[int, Outgoing]]:
        """CONNACK; what is to be sent again."""
        self.is_ready = True
        if not is_present:
            self.held.clear()
            self.is_subscribed = False
            self.out = {packet: each for packet, each in self.out.items() if not each.is_released}
        return list(self.out.items())

    def on_step(self, step: Step) -> list[Step]:
        """A packet for the client; what it answers."""
        packet = step.packet
        if step.kind == SEND:
            if step.qos == 1 or packet not in self.held:
                self.got.append((step.payload.decode(), step.qos))
            if step.qos == 2:
                self.held.add(packet)
            return [Step(PUBACK if step.qos == 1 else PUBREC, packet)]
        if step.kind == SEND_PUBREL:
            self.held.discard(packet)
            return [Step(PUBCOMP, packet)]
        if step.kind == SEND_PUBCOMP:
            self.out.pop(packet, None)
        elif step.kind == SUBSCRIBED:
            self.is_subscribed = self.has_subscribed = True
        return []

    def on_acknowledged(self, packet: int, qos: int, now: int) -> list[Step]:
        """PUBACK or PUBREC."""
        each = self.out.get(packet)
        if each is not None and not each.is_released:
            self.acknowledged.append(each.text)
            self.waited.append(now - each.since)
            if qos == 1:
                del self.out[packet]
            else:
                each.is_released = True
        return [Step(PUBREL, packet)] if qos == 2 else []

    def subscription(self) -> Step:
        return Step(SUBSCRIBE, 1, filters=[(self.topic_filter, 2)])
