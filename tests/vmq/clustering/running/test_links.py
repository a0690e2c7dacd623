"""Lives of links: whatever is lost on the way, each life has everything in order, and a new one begins."""

from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from tests.simulator.seeds import over_seeds, seeds
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.links import LinkFrame, LinkHello
from vmq.clustering.messages.slots import Beat
from vmq.clustering.running.links import LinkLives

Parcel = LinkHello | LinkFrame


class End:
    """One of two nodes."""

    def __init__(self, name: str, draw: Callable[[], int]) -> None:
        self.wire: deque[Parcel] = deque()
        self.lives: list[int] = []
        #: What came in each life.
        self.got: dict[int, list[int]] = {}
        self.breaks = 0
        self.other = "b" if name == "a" else "a"
        self.links = LinkLives(self._send, draw, self._linked, self._broken, self._take)

    def _send(self, _: str, message: Parcel) -> bool:
        self.wire.append(message)
        return True

    def _linked(self, _: str, life: int) -> None:
        self.lives.append(life)
        self.got[life] = []

    def _broken(self, _: str, is_dead: bool) -> None:
        self.breaks += 1

    def _take(self, _: str, messages: list[NodeMessage]) -> None:
        for each in messages:
            assert isinstance(each, Beat)
            self.got[self.lives[-1]].append(each.incarnation)

    def hear(self, message: Parcel) -> None:
        if isinstance(message, LinkHello):
            self.links.on_hello(self.other, message)
        else:
            self.links.on_frame(self.other, message)

    def say(self, number: int) -> None:
        self.links.send(self.other, Beat(number, []))
        self.links.flush()


def ends() -> tuple[End, End]:
    numbers = count(1)
    a, b = End("a", lambda: next(numbers)), End("b", lambda: next(numbers))
    a.links.on_up("b")
    b.links.on_up("a")
    return a, b


def carry(a: End, b: End, random: Random | None = None, lost: float = 0.0) -> None:
    while a.wire or b.wire:
        for one, other in ((a, b), (b, a)):
            if one.wire:
                message = one.wire.popleft()
                if random is None or random.random() >= lost:
                    other.hear(message)


def test_both_call_a_life_alike_and_all_comes() -> None:
    a, b = ends()
    carry(a, b)
    assert a.lives == b.lives
    for number in range(3):
        a.say(number)
        b.say(10 + number)
    carry(a, b)
    assert b.got[b.lives[-1]] == [0, 1, 2]
    assert a.got[a.lives[-1]] == [10, 11, 12]
    assert (a.breaks, b.breaks) == (0, 0)


def test_a_lost_frame_ends_the_life_at_both_ends() -> None:
    a, b = ends()
    carry(a, b)
    a.say(1)
    a.wire.clear()
    a.say(2)
    carry(a, b)
    assert a.lives == b.lives
    assert len(set(a.lives)) == 2
    assert (a.breaks, b.breaks) == (1, 1)
    a.say(3)
    carry(a, b)
    assert b.got[b.lives[-1]] == [3]


def test_who_starts_again_begins_a_new_life() -> None:
    a, b = ends()
    carry(a, b)
    new = End("b", count(100).__next__)
    new.links.on_up("a")
    carry(a, new)
    assert a.breaks == 1
    assert a.lives[-1] == new.lives[-1]


@over_seeds(30)
def test_whatever_is_lost_each_life_has_a_beginning_of_what_was_said_and_the_links_are_whole_in_the_end(
    seed: int,
) -> None:
    random = Random(seed)
    a, b = ends()
    said: dict[int, list[int]] = {}
    for number in range(60):
        if a.links.life("b"):
            said.setdefault(a.links.life("b"), []).append(number)
        a.say(number)
        if random.random() < 0.3:
            a.links.look()
            b.links.look()
        carry(a, b, random, 0.3)
    for _ in range(3):  # heartbeats show what was lost
        a.say(1000)
        b.say(1000)
        a.links.look()
        b.links.look()
        carry(a, b)
    assert a.links.life("b") == b.links.life("a") != 0
    for life, got in b.got.items():
        heard = [each for each in got if each < 1000]
        assert said.get(life, [])[: len(heard)] == heard


@pytest.mark.parametrize("lag", [1, 4, 16])
def test_a_link_on_which_all_takes_long_is_whole_soon_and_stays_so(
    lag: int, subtests: pytest.Subtests
) -> None:
    """Greetings that are under way when it is whole end nothing; nobody answers each of them anew."""
    lost = 0
    for seed in seeds(30):
        with subtests.test(seed=seed):
            random = Random(seed)
            a, b = ends()
            late: dict[str, deque[tuple[int, Parcel]]] = {"a": deque(), "b": deque()}
            said = 0
            for now in range(lag * 30):
                is_bad = now < lag * 10
                for name, one, other in (("a", a, b), ("b", b, a)):
                    one.say(now)
                    one.links.look()
                    while one.wire:
                        message = one.wire.popleft()
                        said += 1
                        if is_bad and random.random() < 0.1:
                            lost += 1
                        else:
                            late[name].append((now + lag, message))
                    while late[name] and late[name][0][0] <= now:
                        other.hear(late[name].popleft()[1])
            assert a.links.life("b") == b.links.life("a") != 0
            assert a.got[a.lives[-1]][-1] == b.got[b.lives[-1]][-1] >= lag * 29 - 2
            assert said < 4 * lag * 30 + 20 * (a.breaks + b.breaks + 2)
    assert lost


def test_a_frame_that_is_none_is_the_peer_s_fault() -> None:
    a, b = ends()
    carry(a, b)
    with pytest.raises(ValueError, match="malformed"):
        b.hear(LinkFrame(b.lives[-1], 0, b"\xc1"))


def test_who_is_down_is_sent_nothing() -> None:
    a, b = ends()
    carry(a, b)
    a.links.on_down("b", is_dead=True)
    assert a.breaks == 1
    a.say(1)
    assert not a.wire
