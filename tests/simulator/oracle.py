"""What must be true of a run, whatever was done to the cluster: it knows what was published, acknowledged and got."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from tests.simulator.clock import Clock


@dataclass
class Publication:
    """One message; its text is of it alone."""

    publisher: str
    topic: str
    text: str
    qos: int
    at: float
    #: When its publisher had the last acknowledgement.
    acknowledged_at: float | None = None


class Oracle:
    """Everything that was published, and everything that came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.publications: dict[str, Publication] = {}
        #: What came to each client, in order: text, and the QoS that it came at.
        self.got: dict[str, list[tuple[str, int]]] = defaultdict(list)
        #: The topics that each client is to have everything of, and since when.
        self.wanted: dict[str, dict[str, float]] = defaultdict(dict)
        #: Clients that cross a split, or come where no copy of their session is in reach: they lose nothing.
        self.apart: set[str] = set()

    # --- what it is told

    def published(self, publisher: str, topic: str, text: str, qos: int) -> None:
        assert text not in self.publications
        self.publications[text] = Publication(publisher, topic, text, qos, self._clock.now)

    def acknowledged(self, text: str) -> None:
        self.publications[text].acknowledged_at = self._clock.now

    def came(self, client: str, text: str, qos: int) -> None:
        self.got[client].append((text, qos))

    def wants(self, client: str, *topics: str) -> None:
        """From now on nothing of these topics may be missing there."""
        for topic in topics:
            self.wanted[client].setdefault(topic, self._clock.now)

    # --- what it says

    def acked(self, topic: str) -> list[str]:
        """The texts that were acknowledged on a topic."""
        found = self.publications.values()
        return [each.text for each in found if each.topic == topic and each.acknowledged_at]

    def missing(self, client: str) -> list[str]:
        """What was acknowledged, and has not come to who wants it."""
        came = {text for text, _ in self.got[client]}
        since = self.wanted[client]
        return [
            each.text
            for each in self.publications.values()
            if each.acknowledged_at is not None
            and each.topic in since
            and each.at >= since[each.topic]
            and each.text not in came
        ]

    def repeated(self, client: str, qos: int = 2) -> list[str]:
        """What came more than once though published and delivered at this QoS."""
        texts = Counter(text for text, at in self.got[client] if at == qos)
        return [text for text, count in texts.items() if count > 1]

    def misplaced(self, client: str) -> list[tuple[str, str]]:
        """Pairs of one publisher's messages of one topic and QoS that came the other way round, for the first time."""
        last: dict[tuple[str, str, int], Publication] = {}
        seen: set[str] = set()
        found = []
        for text, _ in self.got[client]:
            if text in seen:
                continue
            seen.add(text)
            each = self.publications[text]
            before = last.get(line := (each.publisher, each.topic, each.qos))
            if before is not None and before.at > each.at:
                found.append((before.text, text))
            last[line] = each
        return found

    def check(self, *, once: bool = True, order: bool = False) -> None:
        """Nothing acknowledged is lost; QoS 2 came `once`, and all in `order`, if that is promised of such a run."""
        for client in self.wanted:
            assert self.missing(client) == [], f"lost for {client}"
            if client in self.apart:
                continue
            assert not once or self.repeated(client) == [], f"twice for {client}"
            assert not order or self.misplaced(client) == [], f"out of order for {client}"
