"""A publisher of retained messages, which looks after each restart what the broker still knows."""

from random import Random

from tests.crash.history import History
from tests.crash.peers import Peer
from tests.crash.session import Outgoing, StrictSession
from tests.crash.stage import Stage
from tests.support.wire import Packet

TOPICS = tuple(f"crash/retained/{number}" for number in range(12))
WINDOW = 8


class Keeper(Peer):
    """Sets and clears retained messages at QoS 1, and checks them before it goes on in a round.

    A topic's states are numbered; state 0 is "none". After a restart the topic has to be in the
    last acknowledged state or in one that was sent after it.
    """

    def __init__(self, client_id: str, stage: Stage, history: History, random: Random) -> None:
        super().__init__(client_id, stage, history)
        self.checks = 0
        self._random = random
        self._states: dict[str, list[bytes]] = {topic: [b""] for topic in TOPICS}
        self._acknowledged = dict.fromkeys(TOPICS, 0)

    async def live(self) -> None:
        """Check, then connect and go on publishing until the connection ends."""
        if await self.check():
            await super().live()

    async def check(self) -> bool:
        """Compare all retained messages with what they may be; False if a strike cut that short."""
        seen: dict[str, bytes] = {}
        allowed = {topic: self._allowed(topic) for topic in TOPICS}
        needed = {topic for topic in TOPICS if b"" not in allowed[topic]}

        def take(publish: Packet) -> None:
            if not publish.retain or publish.topic in seen:
                self._history.object(f"{publish.topic}: unexpected {publish.payload!r}")
            seen[publish.topic] = publish.payload

        session = StrictSession(f"check-{self._stage.round}", self._history, clean=True, take=take)
        link = await self.connect(session, lambda: None)
        if link is None or not await link.until(lambda: session.connected):
            return False
        session.subscribe("crash/retained/#", 1)
        link.flush()
        try:
            complete = await link.until(lambda: bool(session.granted) and needed <= seen.keys())
        except TimeoutError:
            self._history.object(f"lost retained messages: {sorted(needed - seen.keys())}")
            return False
        # What should not be there comes before the answer to a later packet, if it comes.
        session.ping()
        link.flush()
        if not complete or not await link.until(lambda: session.pings_answered > 0):
            return False
        session.disconnect()
        link.flush()
        link.close()
        for topic in TOPICS:
            if (state := seen.get(topic, b"")) not in allowed[topic]:
                self._history.object(f"{topic}: retained {state!r}, allowed {allowed[topic]}")
        self.checks += 1
        return True

    def on_progress(self) -> None:
        while self.active and self.session.connected and self.session.in_flight < WINDOW:
            self._publish(self._random.choice(TOPICS))

    def _allowed(self, topic: str) -> list[bytes]:
        return self._states[topic][self._acknowledged[topic] :]

    def _publish(self, topic: str) -> None:
        states = self._states[topic]
        number = len(states)
        payload = b"" if self._random.random() < 0.2 else b"state %d" % number
        states.append(payload)

        def on_acknowledged() -> None:
            self._acknowledged[topic] = max(self._acknowledged[topic], number)

        self.session.publish(
            Outgoing(
                topic,
                payload,
                1,
                retain=True,
                on_sent=lambda: None,
                on_acknowledged=on_acknowledged,
            )
        )
