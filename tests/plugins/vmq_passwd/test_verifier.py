"""How often, and how many at a time, passwords are hashed."""

import asyncio
from collections.abc import Callable

import pytest
from vmq_hooks import Peer
from vmq_hooks.turns import TurnsClosedError
from vmq_passwd.users import Users
from vmq_passwd.verifier import Verifier


class Stored:
    """A hash that counts how often it is asked."""

    def __init__(self, password: bytes) -> None:
        self.password = password
        self.asked = 0

    def __repr__(self) -> str:
        return f"Stored({self.password!r})"

    def verify(self, password: bytes) -> bool:
        self.asked += 1
        return password == self.password


class Bench:
    """A verifier whose threads the test holds back and lets go."""

    def __init__(self, *, cache_size: int = 10, threads: int = 2) -> None:
        self.now = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.running = self.most_running = 0
        self.verifier = Verifier(
            self.run, lambda: self.now, threads=threads, cache_size=cache_size, cache_seconds=60.0
        )
        self.bob = Stored(b"1")
        self.users = Users({"bob": self.bob})

    async def run(self, function: Callable[[], bool]) -> bool:
        self.running += 1
        self.begun.put_nowait(None)
        self.most_running = max(self.most_running, self.running)
        await self.gate.wait()
        self.running -= 1
        return function()

    async def verify(
        self,
        name: str,
        password: bytes,
        users: Users | None = None,
        network: str = "192.0.2.1",
        failures: int = 0,
    ) -> bool:
        peer = Peer(network, 1883, network=network, failures=failures)
        return await self.verifier.verify(
            self.users if users is None else users, name, password, peer
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_empty_password_is_nobody_s(bench: Bench) -> None:
    """It costs as much as any other: else the answer's time would tell who has none."""
    stored = Stored(b"")
    assert not await bench.verify("bob", b"", Users({"bob": stored}))
    assert not await bench.verify("bob", b"", Users({"bob": stored}))
    assert stored.asked == 2


class TestRemembering:
    async def test_a_right_password_is_hashed_once(self, bench: Bench) -> None:
        assert [await bench.verify("bob", b"1") for _ in range(3)] == [True] * 3
        assert bench.bob.asked == 1

    async def test_a_wrong_one_each_time(self, bench: Bench) -> None:
        for _ in range(3):
            assert not await bench.verify("bob", b"2")
        assert bench.bob.asked == 3

    async def test_it_ends(self, bench: Bench) -> None:
        await bench.verify("bob", b"1")
        bench.now = 60.0
        await bench.verify("bob", b"1")
        assert bench.bob.asked == 2

    async def test_a_new_password_ends_it(self, bench: Bench) -> None:
        await bench.verify("bob", b"1")
        assert not await bench.verify("bob", b"1", Users({"bob": Stored(b"2")}))
        assert not await bench.verify("bob", b"1", Users({}))

    async def test_the_least_recently_used_is_forgotten_first(self) -> None:
        bench = Bench(cache_size=2)
        stored = {name: Stored(b"1") for name in "abc"}
        for name in "abaca":
            assert await bench.verify(name, b"1", Users(stored))
        assert {name: each.asked for name, each in stored.items()} == {"a": 1, "b": 1, "c": 1}
        await bench.verify("b", b"1", Users(stored))
        assert stored["b"].asked == 2

    async def test_it_can_be_switched_off(self) -> None:
        bench = Bench(cache_size=0)
        for _ in range(2):
            assert await bench.verify("bob", b"1")
        assert bench.bob.asked == 2

    async def test_names_and_passwords_are_not_run_together(self, bench: Bench) -> None:
        users = Users({"a": Stored(b"bc"), "ab": Stored(b"bc")})
        assert await bench.verify("a", b"bc", users)
        assert not await bench.verify("ab", b"c", users)

    async def test_no_password_is_kept_in_memory(self, bench: Bench) -> None:
        bench.users = Users({"bob": Stored(b"correct horse")})
        assert await bench.verify("bob", b"correct horse")
        assert b"correct horse" not in repr(vars(bench.verifier)).encode()


class TestUnknownUsers:
    async def test_they_cost_a_hash_too_and_somebody_elses_password_does_not_help(
        self, bench: Bench
    ) -> None:
        for _ in range(2):
            assert not await bench.verify("eve", b"1")
        assert bench.bob.asked == 2

    async def test_the_same_hash_stands_in_each_time(self, bench: Bench) -> None:
        stored = [Stored(bytes([index])) for index in range(20)]
        users = Users({f"user{index}": each for index, each in enumerate(stored)})
        for _ in range(3):
            await bench.verify("eve", b"x", users)
        assert sorted(each.asked for each in stored)[-2:] == [0, 3]

    async def test_where_nobody_is_known(self) -> None:
        assert not await Bench().verify("eve", b"1", Users({}))


class TestManyAtOnce:
    @pytest.fixture
    def bench(self) -> Bench:
        """One thread, which is held back."""
        bench = Bench(threads=1)
        bench.gate.clear()
        return bench

    async def test_all_the_others_wait(self, bench: Bench) -> None:
        stored = {f"d{number}": Stored(b"1") for number in range(2000)}
        users = Users(stored)
        work = [asyncio.ensure_future(bench.verify(name, b"1", users)) for name in stored]
        await bench.begun.get()
        bench.gate.set()
        assert await asyncio.gather(*work) == [True] * 2000
        assert bench.most_running == 1

    async def test_a_flood_from_one_address_does_not_keep_another_waiting(
        self, bench: Bench
    ) -> None:
        flood = [
            asyncio.ensure_future(bench.verify("eve", b"%d" % number, network="192.0.2.66"))
            for number in range(100)
        ]
        await bench.begun.get()
        bob = asyncio.ensure_future(bench.verify("bob", b"1"))
        bob.add_done_callback(lambda _: bench.gate.clear())
        bench.gate.set()
        assert await bob
        assert bench.bob.asked < 20, "of the flood, whose decoy it is, few came before"
        bench.gate.set()
        await asyncio.gather(*flood)

    async def test_what_was_right_before_waits_for_nobody(self) -> None:
        bench = Bench(threads=1)
        await bench.verify("bob", b"1")
        await bench.begun.get()
        bench.gate.clear()
        flood = [asyncio.ensure_future(bench.verify("eve", b"%d" % each)) for each in range(100)]
        await bench.begun.get()
        assert await bench.verify("bob", b"1")
        bench.gate.set()
        await asyncio.gather(*flood)

    async def test_the_same_credentials_are_hashed_once(self) -> None:
        bench = Bench(threads=1, cache_size=0)
        bench.gate.clear()
        work = [asyncio.ensure_future(bench.verify("bob", b"1")) for _ in range(50)]
        await bench.begun.get()
        bench.gate.set()
        assert await asyncio.gather(*work) == [True] * 50
        assert bench.bob.asked == 1

    async def test_a_client_that_goes_away_takes_nobody_with_it(self, bench: Bench) -> None:
        leaves, stays = (asyncio.ensure_future(bench.verify("bob", b"1")) for _ in range(2))
        await bench.begun.get()
        leaves.cancel()
        bench.gate.set()
        assert await stays
        assert leaves.cancelled()

    async def test_who_goes_away_while_it_waits_costs_no_hash(self, bench: Bench) -> None:
        first = asyncio.ensure_future(bench.verify("bob", b"2"))
        await bench.begun.get()
        leaves = asyncio.ensure_future(bench.verify("bob", b"3"))
        await asyncio.sleep(0)
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        bench.gate.set()
        assert not await first
        assert await bench.verify("bob", b"1")
        assert bench.bob.asked == 2

    async def test_who_goes_away_while_it_is_checked_is_remembered_when_it_comes_back(
        self, bench: Bench
    ) -> None:
        bench.gate.clear()
        leaves = asyncio.ensure_future(bench.verify("bob", b"1"))
        await bench.begun.get()
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        bench.gate.set()
        for _ in range(2):
            assert await bench.verify("bob", b"1")
        assert bench.bob.asked == 1

    async def test_who_waits_when_it_ends_is_told(self, bench: Bench) -> None:
        first = asyncio.ensure_future(bench.verify("bob", b"1"))
        await bench.begun.get()
        waits = asyncio.ensure_future(bench.verify("bob", b"2"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.verifier.close()
        with pytest.raises(TurnsClosedError):
            await waits
        bench.gate.set()
        assert await first
