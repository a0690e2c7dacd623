"""The network of a simulated cluster: it loses, repeats, delays and reorders frames, and is cut and mended."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random


@dataclass
class Network:
    """What happens to a frame: probabilities, and delays in seconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    shortest: float = 0.001
    longest: float = 0.02
    #: Frames from one node to another stay in order, as on a real link.
    ordered: bool = False
    #: Ways (from, to) that nothing passes.
    cuts: set[tuple[str, str]] = field(default_factory=set)
    #: The longest delays of ways that are slower, or quicker, than others.
    lags: dict[tuple[str, str], float] = field(default_factory=dict)
    _arrivals: dict[tuple[str, str], float] = field(default_factory=dict)

    def delays(self, random: Random, now: float, sender: str, receiver: str) -> Iterator[float]:
        """How long a frame takes, once for each copy of it that arrives unless the way is cut by then."""
        way = (sender, receiver)
        copies = 1 + (self.duplicate > 0 and random.random() < self.duplicate)
        for _ in range(copies):
            if self.loss > 0 and random.random() < self.loss:
                continue
            delay = random.uniform(self.shortest, self.lags.get(way, self.longest))
            if self.ordered:
                arrival = max(now + delay, self._arrivals.get(way, 0.0))
                self._arrivals[way] = arrival
                delay = arrival - now
            yield delay

    def split(self, *sides: Iterable[str]) -> None:
        """Nothing passes between these sides any more."""
        for one in sides:
            for other in sides:
                if one is not other:
                    self.cuts |= {(a, b) for a in one for b in other}

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = 0.0
        self.duplicate = 0.0
