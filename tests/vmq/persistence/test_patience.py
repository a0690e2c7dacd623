"""How long a commit waits: at their pace, receivers have to acknowledge all of it in time."""

import pytest

from tests.vmq.commit_stage import Db
from vmq.mqtt.message import Delivery, Message
from vmq.persistence.patience import LONGEST, SPAN, Patience
from vmq.store.store import Store

SESSION = (1).to_bytes(8, "big")


class Waiting:
    """A commit that waits for receivers, on a clock and with a CPU time of its own."""

    def __init__(self) -> None:
        self.now = self.ran = 0.0
        self.store = Store(Db(), "os", lambda: None)
        self.patience = Patience()
        self.patience.computed = lambda: self.ran
        self.deliveries: list[Delivery] = []

    def deliver(self, count: int) -> None:
        for _ in range(count):
            each = Delivery(Message(b"t", b"x", 1, False), 1, False, "")
            self.deliveries.append(each)
            self.store.put_off(SESSION, each)

    def answer(self, count: int) -> None:
        for _ in range(count):
            self.store.answer(SESSION, self.deliveries.pop(0))

    def begin(self) -> None:
        self.patience.begin(len(self.store.unwritten), self.store.answered, self.now)

    def goes_on(self, *, busy: bool = False, spans: int = 1) -> bool:
        """After so many spans: whether it waits on."""
        self.now += spans * SPAN
        self.ran += spans * SPAN * busy
        return self.patience.goes_on(len(self.store.unwritten), self.store.answered, self.now)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_it_waits_while_the_pace_suffices(waiting: Waiting) -> None:
    waiting.deliver(100)
    waiting.begin()
    for _ in range(8):
        waiting.answer(11)
        assert waiting.goes_on()


def test_it_does_not_wait_for_receivers_that_are_too_slow(waiting: Waiting) -> None:
    waiting.deliver(100)
    waiting.begin()
    waiting.answer(20)
    assert waiting.goes_on()
    waiting.answer(5)
    assert not waiting.goes_on()


def test_it_does_not_wait_for_receivers_that_are_silent(waiting: Waiting) -> None:
    waiting.deliver(1)
    waiting.begin()
    assert not waiting.goes_on(busy=True)


def test_it_does_not_wait_for_what_no_receiver_spares_it(waiting: Waiting) -> None:
    waiting.store.delete_later(b"k")
    waiting.begin()
    assert not waiting.goes_on()


def test_what_was_acknowledged_before_is_not_their_pace(waiting: Waiting) -> None:
    waiting.deliver(100)
    waiting.answer(90)
    waiting.begin()
    assert not waiting.goes_on()


def test_a_busy_loop_to_which_messages_come_has_not_read_yet(waiting: Waiting) -> None:
    waiting.deliver(1)
    waiting.begin()
    waiting.deliver(100)
    assert waiting.goes_on(busy=True)
    waiting.deliver(100)
    assert not waiting.goes_on(busy=False)


def test_it_does_not_wait_for_longer(waiting: Waiting) -> None:
    waiting.deliver(100)
    waiting.begin()
    waiting.answer(99)
    assert not waiting.goes_on(spans=int(LONGEST / SPAN))
