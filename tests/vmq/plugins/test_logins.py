"""CONNECTs that wait: delayed after wrong passwords, bounded in bytes, fair by address."""

import asyncio
from typing import Any

import pytest
from vmq_hooks import Peer, Refuse, SubscriberId

from tests.vmq.support import House
from vmq.core.hook_sites import Pending
from vmq.plugins.logins import COST, Logins

WRONG = Refuse("wrong password", bad_credentials=True)


class Bench:
    """Logins in front of a chain whose answers the test gives."""

    def __init__(self) -> None:
        self.house = House()
        self.logins = Logins(self.house.core)
        self.site = self.logins.over("auth_on_register", self.chain)
        self.asked: list[tuple[Peer, str | None]] = []
        self.answer: Any = None
        self.pending: list[Pending] = []
        self.cancelled = 0

    def chain(self, peer: Peer, _who: Any, username: str | None, *_rest: Any) -> Any:
        self.asked.append((peer, username))
        if self.answer is not Pending:
            return self.answer
        self.pending.append(Pending(self.cancel))
        return self.pending[-1]

    def cancel(self) -> None:
        self.cancelled += 1

    def login(self, network: str = "192.0.2.1", user: str | None = "ann") -> Any:
        peer = Peer(network, 4711, network=network)
        return self.site(peer, SubscriberId("c"), user, b"x", True)

    def wait(self, network: str = "192.0.2.1", user: str | None = "ann") -> list[Any]:
        """A login that waits; its answer will be in the list."""
        pending = self.login(network, user)
        assert isinstance(pending, Pending)
        answers: list[Any] = []
        pending.then = answers.append
        return answers


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_another_hook_is_left_alone(bench: Bench) -> None:
    assert bench.logins.over("auth_on_publish", len) is len


def test_answers_that_come_at_once_pass(bench: Bench) -> None:
    for bench.answer in (None, Refuse("no"), WRONG):
        assert bench.login() is bench.answer
    assert bench.house.core.counters.logins_failed == 1
    assert (bench.logins.bytes, bench.logins.waiting) == (0, 0)


async def test_after_wrong_passwords_the_next_is_looked_at_later_and_let_in(bench: Bench) -> None:
    bench.house.options.failed_login_delay = 0.02
    bench.answer = WRONG
    for _ in range(3):
        assert bench.login() is WRONG
    bench.answer = None
    assert bench.login(user="bob") is None, "another user of the address"
    assert bench.login("192.0.2.2") is None, "the user at another address"
    asked = len(bench.asked)
    arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending = bench.login()
    assert isinstance(pending, Pending)
    pending.then = arrived.set_result
    assert len(bench.asked) == asked
    assert await asyncio.wait_for(arrived, 30) is None
    assert bench.login() is None, "a right password clears it"
    assert bench.house.core.counters.logins_delayed == 1
    assert bench.logins.waiting == 0


def test_plugins_are_told_of_failures_from_the_address(bench: Bench) -> None:
    bench.answer = WRONG
    bench.login(user="a")
    bench.login(user="b")
    bench.login("192.0.2.2")
    assert [peer.failures for peer, _ in bench.asked] == [0, 1, 0]


def test_who_could_not_be_judged_has_not_failed(bench: Bench) -> None:
    bench.answer = Refuse("too busy", unavailable=True)
    for _ in range(10):
        assert bench.login() is bench.answer
    assert bench.house.core.counters.logins_failed == 0


def test_nobody_is_blamed_for_what_came_by_way_of_a_proxy_that_does_not_tell(bench: Bench) -> None:
    bench.answer = WRONG
    for _ in range(10):
        assert bench.login(network="") is WRONG
    assert bench.house.core.counters.logins_failed == 10
    assert len(bench.logins.failures.pairs) == 0


async def test_guesses_that_do_not_wait_for_their_verdict_are_delayed_too(bench: Bench) -> None:
    bench.answer = Pending
    for _ in range(3):
        bench.login().cancel()
    assert bench.cancelled == 3
    assert isinstance(bench.login(), Pending)
    assert len(bench.asked) == 3, "the fourth is not asked about yet"


def test_a_verdict_that_comes_later_is_handed_on_and_counted(bench: Bench) -> None:
    bench.answer = Pending
    answers = bench.wait()
    assert bench.logins.waiting == 1
    assert bench.logins.bytes >= COST
    bench.pending[0].finish(WRONG)
    assert answers == [WRONG]
    assert (bench.logins.bytes, bench.logins.waiting) == (0, 0)
    assert bench.house.core.counters.logins_failed == 1


@pytest.fixture
def crowd(bench: Bench) -> Bench:
    bench.answer = Pending
    return bench


async def test_what_waits_is_bounded_and_the_latest_of_the_largest_make_room(crowd: Bench) -> None:
    crowd.house.options.max_login_bytes = 10 * (COST + 1000)
    flood = [crowd.wait("192.0.2.66", f"u{number}") for number in range(50)]
    others = [crowd.wait(f"192.0.2.{number}") for number in range(5)]
    await asyncio.sleep(0)
    assert crowd.logins.bytes <= crowd.house.options.max_login_bytes
    assert others == [[]] * 5, "they wait"
    assert [len(each) for each in flood] == [0] * 5 + [1] * 45
    assert all(isinstance(found, Refuse) and found.unavailable for (found,) in flood[5:])
    assert crowd.cancelled == 45
    assert crowd.house.core.counters.logins_put_off == 45
    for pending in crowd.pending:
        pending.finish(None)
    assert others == [[None]] * 5
    assert (crowd.logins.bytes, crowd.logins.waiting) == (0, 0)


async def test_bytes_that_come_behind_a_connect_count(crowd: Bench) -> None:
    crowd.house.options.max_login_bytes = 4 * COST
    quiet = crowd.wait("192.0.2.1")
    pending = crowd.login("192.0.2.66")
    answers: list[Any] = []
    pending.then = answers.append
    pending.charge(4 * COST)
    await asyncio.sleep(0)
    assert quiet == []
    assert [each.unavailable for each in answers] == [True]
    pending.charge(4 * COST)
    assert crowd.logins.waiting == 1, "who was put off holds nothing"
