"""A client that keeps to the standard: it sends again what is not acknowledged, in order, with its packet ids."""

from dataclasses import dataclass, field

from vmq.clustering.messages.fronts import SessionLimits, SessionStep
from vmq.clustering.slots import words
from vmq.clustering.slots.flow import Given, SendingRun, steps_of

WINDOW = 3
NEVER = 1 << 60


def one_by_one(given: list[Given]) -> list[SessionStep]:
    """What a front has for a client, as packets."""
    found: list[SessionStep] = []
    for each in given:
        several = each.each() if isinstance(each, SendingRun) else [each]
        found += steps_of([*several])
    return found


@dataclass
class Outgoing:
    text: str
    is_released: bool
    since: int


@dataclass
class Toggle:
    """A subscription that comes and goes, and the session with it."""

    #: The next connection begins without a session.
    is_clean: bool = False
    packet: int = 0
    pending: SessionStep | None = None
    #: Sent SUBSCRIBE, SUBACK came, sent UNSUBSCRIBE, UNSUBACK came; the session ended; 0: not yet.
    spans: list[list[int]] = field(default_factory=list)
    #: What was published before was dropped with a session.
    since: int = 0

    def next(self, now: int) -> list[SessionStep]:
        if self.pending is not None:
            return []
        self.packet += 1
        filters = [("+/#", 2)]
        if self.spans and not self.spans[-1][2]:
            self.pending = SessionStep(words.UNSUBSCRIBE, self.packet, filters=filters)
            self.spans[-1][2] = now
        else:
            self.pending = SessionStep(words.SUBSCRIBE, self.packet, filters=filters)
            self.spans.append([now, 0, 0, 0])
        return [self.pending]

    def on_answer(self, step: SessionStep, now: int) -> None:
        if self.pending is None or step.packet != self.packet:
            return
        self.pending = None
        self.spans[-1][1 if step.kind == words.SUBSCRIBED else 3] = now

    def on_present(self, is_present: bool, now: int) -> list[SessionStep]:
        """CONNACK; what is to be sent again."""
        if self.is_clean or not is_present:
            self.pending = None
            self.since = now
            if self.spans:
                self.spans[-1] = [each or now for each in self.spans[-1]]
            return []
        return [] if self.pending is None else [self.pending]

    def was_on(self, first: int, acknowledged: int) -> bool:
        """Whether it must have what was published and acknowledged at these times."""
        return first > self.since and any(
            0 < begun < first and (acknowledged < ended or not ended)
            for _, begun, ended, _ in self.spans
        )

    def was_off(self, first: int, acknowledged: int) -> bool:
        """Whether it may not get what was published and acknowledged at these times."""
        overs = [1, *[over for *_, over in self.spans]]
        begins = [*[asked for asked, *_ in self.spans], NEVER]
        return any(
            over and over < first and acknowledged < begin
            for over, begin in zip(overs, begins, strict=True)
        )


@dataclass
class Client:
    """One client, of any number of connections after each other."""

    name: str
    #: At which it publishes; 0: it subscribes.
    qos: int
    topic_filter: str = ""
    #: It subscribes now and then.
    toggles: bool = False
    #: Plugins decide something for its session: each time another window, from this one on; 0: nothing.
    window: int = 0
    #: The scope of its mountpoint.
    scope: str = ""
    toggle: Toggle = field(default_factory=Toggle)
    number: int = 0
    node: str = ""
    is_ready: bool = False
    is_subscribed: bool = False
    has_subscribed: bool = False
    out: dict[int, Outgoing] = field(default_factory=dict)
    #: Packet ids at QoS 2 that came and were not released, with their messages.
    held: dict[int, str] = field(default_factory=dict)
    sent: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    #: Steps from the first PUBLISH to the acknowledgement.
    waited: list[int] = field(default_factory=list)
    got: list[tuple[str, int]] = field(default_factory=list)
    #: Messages at QoS 2 in the order of their PUBRELs, in which many clients hand them to the application.
    released: list[str] = field(default_factory=list)
    #: Packet ids at QoS 2 that came on this connection, the dots at QoS 1, and how many of them came again on it.
    on_connection: set[int] = field(default_factory=set)
    dots: set[words.Dot] = field(default_factory=set)
    again: int = 0
    #: How often a clean connection was told that there is a session.
    claimed: int = 0
    #: Whether it was told on a connection that it has a session from now on; how often on a later one that it has none.
    is_known: bool = False
    denied: int = 0
    #: It was served where no current copy of its session was (E1 in docs/cluster.md).
    is_apart: bool = False

    @property
    def id(self) -> str:
        return self.scope + self.name

    def limits(self) -> SessionLimits | None:
        """What plugins have decided at its last connection."""
        return SessionLimits(window=self.window + self.number % 3) if self.window else None

    def next_text(self) -> str:
        self.sent += 1
        return f"{self.name}-{self.sent}"

    def free_packet(self) -> int:
        return next(packet for packet in range(1, WINDOW + 2) if packet not in self.out)

    def on_present(self, is_present: bool, now: int) -> list[tuple[int, Outgoing]]:
        """CONNACK; what is to be sent again."""
        self.is_ready = True
        self.claimed += is_present and self.toggle.is_clean
        self.denied += self.is_known and not is_present
        self.is_known = not self.toggles
        self.on_connection.clear()
        self.dots.clear()
        if not is_present:
            self.held.clear()
            self.is_subscribed = False
            self.out = {packet: each for packet, each in self.out.items() if not each.is_released}
        return list(self.out.items())

    def on_step(self, step: SessionStep, now: int) -> list[SessionStep]:
        """A packet for the client; what it answers."""
        packet = step.packet
        if step.kind == words.SEND:
            text = step.payload.decode()
            if step.qos == 1:
                dot = step.addresses[0][1]
                self.again += dot in self.dots
                self.dots.add(dot)
            if step.qos == 1 or packet not in self.held:
                self.got.append((text, step.qos))
            if step.qos == 2:
                self.again += packet in self.on_connection
                self.on_connection.add(packet)
                self.held.setdefault(packet, text)
            return [SessionStep(words.PUBACK if step.qos == 1 else words.PUBREC, packet)]
        if step.kind == words.SEND_PUBREL:
            if packet in self.held:
                self.released.append(self.held.pop(packet))
            self.on_connection.discard(packet)
            return [SessionStep(words.PUBCOMP, packet)]
        if step.kind == words.SEND_PUBCOMP:
            self.out.pop(packet, None)
        elif step.kind in (words.SUBSCRIBED, words.UNSUBSCRIBED):
            self.is_subscribed = self.has_subscribed = True
            self.toggle.on_answer(step, now)
        return []

    def on_acknowledged(self, packet: int, qos: int, now: int) -> list[SessionStep]:
        """PUBACK or PUBREC."""
        each = self.out.get(packet)
        if each is not None and not each.is_released:
            self.acknowledged[each.text] = now
            self.waited.append(now - each.since)
            if qos == 1:
                del self.out[packet]
            else:
                each.is_released = True
        return [SessionStep(words.PUBREL, packet)] if qos == 2 else []

    def subscription(self) -> SessionStep:
        return SessionStep(words.SUBSCRIBE, 1, filters=[(self.topic_filter, 2)])
