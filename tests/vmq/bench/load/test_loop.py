"""The loop: who is served when."""

import gc
import socket
from itertools import pairwise

from vmq.bench.load.loop import READ, Loop, quiet_memory


class Ear:
    """Notes when it is told that its socket is ready; reads nothing."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.heard = heard

    def on_ready(self, events: int) -> None:
        assert events == READ
        self.heard.append(self.name)


class Pump:
    kicked = False

    def __init__(self, loop: Loop, again: int) -> None:
        self.loop = loop
        self.left = again
        self.pumped = 0

    def pump(self) -> None:
        self.pumped += 1
        if self.left:
            self.left -= 1
            self.loop.kick(self)


def test_the_crowd_does_not_keep_the_measured_ones_waiting(loop: Loop) -> None:
    heard: list[str] = []
    pairs = [socket.socketpair() for _ in range(51)]
    for index, (ours, theirs) in enumerate(pairs):
        name = "measured" if index == 0 else "crowd"
        loop.register(ours.fileno(), READ, Ear(name, heard), crowd=index > 0)
        theirs.send(b"x")
    for _ in range(6):
        loop.step(1)
    assert heard.count("crowd") >= 40
    # In every step the measured one has its turn, and never more than a few others before it.
    places = [at for at, name in enumerate(heard) if name == "measured"]
    assert len(places) == 6
    assert max(b - a for a, b in pairwise(places)) <= 9
    for index, (ours, theirs) in enumerate(pairs):
        loop.unregister(ours.fileno(), crowd=index > 0)
        ours.close()
        theirs.close()


def test_who_is_kicked_is_pumped_once_a_step(loop: Loop) -> None:
    pump = Pump(loop, again=2)
    loop.kick(pump)
    loop.kick(pump)
    counts = []
    for _ in range(4):
        loop.step(0)
        counts.append(pump.pumped)
    assert counts == [1, 2, 3, 3]
    assert not pump.kicked


def test_what_others_keep_from_the_collector_they_keep() -> None:
    assert gc.get_freeze_count()  # by tests/conftest.py
    with quiet_memory():
        pass
    assert gc.get_freeze_count()
