"""What is kept for others: as long as they need it, given once when they are gone, and there after a restart."""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simulator.disk import Database
from vmq.clustering.hinted_handoff.hints_in import KEPT, HintsIn
from vmq.clustering.messages.publishes import RETAIN as RETAINED
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import (
    AskTaken,
    HintedPublish,
    HintsBegin,
    HintsHandedOver,
    HintsNeeded,
    IsTaken,
    KeepHints,
)
from vmq.clustering.messages.takeover import RETAIN, SessionBatch
from vmq.store.store import Store, StoreError

ALL = ["a", "b", "c", "d"]


class Keeper:
    """One node that keeps things, through its lives."""

    def __init__(self, name: str = "c") -> None:
        self.name = name
        self.db = Database()
        self.given: list[tuple[str, bytes]] = []
        self.shared: list[bytes] = []
        self.told: list[tuple[str, HintsHandedOver]] = []
        self.asked: list[tuple[str, AskTaken]] = []
        self.now = 0.0
        self.start()

    def start(self) -> None:
        self.store = Store(self.db, "os", lambda: None)
        self.it = HintsIn(
            self.name,
            self.store,
            self.give,
            lambda _origin, publish: self.shared.append(publish.payload),
            lambda peer, message: self.told.append((peer, message)),
            lambda peer, message: self.asked.append((peer, message)),
            10.0,
        )

    def give(self, batch: SessionBatch) -> None:
        [entry] = batch.entries
        entry.check()
        self.given.append((batch.client_id, entry.payload))

    def commit(self) -> None:
        self.store.begin_commit()
        self.store.write()
        self.store.end_commit()

    def deposit(
        self, number: int, *clients: str, store: int = 1, owner: str = "b", qos: int = 1
    ) -> None:
        publish = RemotePublish(b"t", b"%d" % number, qos)
        keepers = ["c", "d"]
        kept = [HintedPublish(publish, list(clients))]
        self.it.on_deposit("a", KeepHints(store, owner, 1, number, kept, keepers))

    def go_on(self, members: list[str], up: list[str], waits: float = 12.0) -> None:
        """With time for all answers."""
        for later in (0.0, waits):
            self.now += later
            while self.it.step(members, up, self.now):
                self.commit()


def test_as_long_as_its_origin_may_come_back_nothing_is_given() -> None:
    keeper = Keeper()
    keeper.deposit(1, "s", "t")
    keeper.go_on(ALL, ["b", "d"])
    keeper.go_on([], [])
    assert keeper.given == []
    keeper.go_on(["b", "c", "d"], ["b", "d"])
    assert keeper.given == [("s", b"1"), ("t", b"1")]
    assert keeper.told == [("d", HintsHandedOver("a", 1))]
    assert len(keeper.it) == 0


def test_an_origin_with_another_store_has_lost_the_first() -> None:
    keeper = Keeper()
    keeper.deposit(1, "s")
    keeper.deposit(2, "s", store=7)
    keeper.go_on(ALL, ALL)
    assert keeper.given == [("s", b"1")]
    keeper.it.on_settled("a", HintsNeeded(9, []))
    keeper.go_on(ALL, ALL)
    assert keeper.given == [("s", b"1"), ("s", b"2")]


def test_an_origin_that_comes_up_is_asked_what_it_needs_until_it_says_so() -> None:
    keeper = Keeper()
    keeper.it.peer_up("a")
    keeper.deposit(1, "s")
    keeper.go_on(ALL, ALL)
    assert keeper.asked == []
    keeper.it.peer_up("a")
    keeper.go_on(ALL, ["b"])
    assert keeper.asked == []
    keeper.go_on(ALL, ALL, 1.0)
    assert keeper.asked == [("a", AskTaken("a", 1))]
    keeper.it.on_settled("a", HintsNeeded(1, [HintsBegin("b", 1, 1)]))
    keeper.go_on(ALL, ALL, 1.0)
    assert len(keeper.asked) == 1
    keeper.commit()
    keeper.start()
    keeper.go_on(ALL, ALL, 1.0)
    assert len(keeper.asked) == 3
    assert len(keeper.it) == 1


def test_an_origin_that_has_another_store_is_asked_though_nobody_missed_it() -> None:
    keeper = Keeper()
    keeper.deposit(1, "s")
    for store in (0, 1):
        keeper.it.doubt(lambda _, store=store: store)  # type: ignore[misc]
        keeper.go_on(ALL, ALL)
    assert keeper.asked == []
    keeper.it.doubt(lambda _: 2)
    keeper.go_on(ALL, ALL, 1.0)
    assert keeper.asked == [("a", AskTaken("a", 1))]
    keeper.it.on_settled("a", HintsNeeded(2, []))
    keeper.go_on(ALL, ALL)
    assert keeper.given == [("s", b"1")]


def test_who_should_give_it_and_does_not_is_not_waited_for() -> None:
    keeper = Keeper("d")
    keeper.deposit(1, "s")
    keeper.go_on(["b", "c", "d"], ["b", "c"])
    assert keeper.given == []
    keeper.go_on(["b", "c", "d"], ["b", "c"])
    assert keeper.given == [("s", b"1")]


def test_the_first_of_those_who_keep_it_and_are_up_gives_it() -> None:
    first, second = Keeper("c"), Keeper("d")
    for keeper in (first, second):
        keeper.deposit(1, "s")
    second.go_on(["b", "c", "d"], ["b", "c"])
    assert second.given == []
    first.go_on(["b", "c", "d"], ["b", "d"])
    for peer, given in first.told:
        assert peer == "d"
        second.it.on_given("c", given)
    second.go_on(["b", "d"], ["b"])
    assert (first.given, second.given) == ([("s", b"1")], [])
    third = Keeper("d")
    third.deposit(1, "s")
    third.go_on(["b", "c", "d"], ["b"])
    assert third.given == [("s", b"1")]


def test_what_its_node_has_taken_already_is_not_given_to_it_again() -> None:
    keeper = Keeper()
    for number in range(1, 5):
        keeper.deposit(number, "s")
    keeper.go_on(["b", "c"], [], 9.0)
    assert keeper.given == []
    assert keeper.asked == []
    keeper.go_on(["b", "c"], ["b"], 0.9)
    assert keeper.asked[0] == ("b", AskTaken("a", 1))
    assert keeper.given == []
    keeper.it.on_taken("b", IsTaken("a", 1, 1, 2))
    keeper.it.on_taken("b", IsTaken("x", 1, 1, 9))
    keeper.go_on(["b", "c"], ["b"], 0.0)
    assert keeper.given == [("s", b"3"), ("s", b"4")]
    assert len(keeper.it) == 0


def test_a_node_that_stays_down_is_not_waited_for() -> None:
    keeper = Keeper()
    keeper.deposit(1, "s")
    keeper.go_on(["b", "c"], [], 9.0)
    assert keeper.given == []
    keeper.go_on(["b", "c"], [], 2.0)
    assert keeper.given == [("s", b"1")]


def test_a_share_group_chooses_anew_and_flags_stay() -> None:
    keeper = Keeper()
    seen: list[SessionBatch] = []
    keeper.it._give = seen.append
    shared = RemotePublish(b"t", b"x", 1, group="$share/g/t")
    retained = RemotePublish(b"t", b"y", 2 | RETAINED)
    kept = [HintedPublish(shared, []), HintedPublish(retained, ["s"])]
    keeper.it.on_deposit("a", KeepHints(1, "b", 1, 1, kept, ["c"]))
    keeper.go_on(["b", "c"], ["b"])
    assert keeper.shared == [b"x"]
    assert [each.entries[0].flags for each in seen] == [2 | RETAIN]
    assert keeper.it.given == 2


def test_a_record_that_is_none_is_refused() -> None:
    keeper = Keeper()
    for key, value in (
        (KEPT + b"nonsense", b""),
        (KEPT + b"a\0" + bytes(8) + b"b\0" + bytes(16), b"\1"),
    ):
        keeper.db.records = {key: value}
        with pytest.raises(StoreError, match="nothing that another node left here"):
            keeper.start()


class Keeping(RuleBasedStateMachine):
    """One origin that deposits and settles, and in the end is gone; its keeper dies now and then."""

    @initialize()
    def begin(self) -> None:
        self.keeper = Keeper()
        self.wanted: dict[tuple[str, int], bytes] = {}
        self.number = 0
        self.is_gone = False

    def unless_gone(self, do: Callable[[], None]) -> None:
        if not self.is_gone:
            do()
            self.keeper.commit()

    @rule(owner=st.sampled_from("bd"), again=st.booleans())
    def deposit(self, owner: str, again: bool) -> None:
        def do() -> None:
            self.number += not again or not self.number
            number = self.number
            if again and (owner, number) not in self.wanted:
                return
            self.keeper.deposit(number, "s", owner=owner)
            self.wanted[owner, number] = b"%d" % number

        self.unless_gone(do)

    @rule(owner=st.sampled_from("bd"), number=st.integers(1, 30))
    def settle(self, owner: str, number: int) -> None:
        def do() -> None:
            left = [HintsBegin(owner, 1, number), HintsBegin("x", 1, 1)]
            self.keeper.it.on_settled("a", HintsNeeded(1, left))
            for each in list(self.wanted):
                if each[0] != owner or each[1] < number:
                    del self.wanted[each]

        self.unless_gone(do)

    @rule()
    def restart(self) -> None:
        self.keeper.start()

    @rule()
    def lose(self) -> None:
        self.is_gone = True
        self.keeper.go_on(["b", "c", "d"], ["b", "d"])
        self.keeper.commit()
        assert sorted(self.keeper.given) == sorted(("s", each) for each in self.wanted.values())

    @invariant()
    def keeps_what_is_wanted(self) -> None:
        if hasattr(self, "keeper"):
            stored = sum(key[:1] == KEPT for key in self.keeper.db.records)
            assert stored == len(self.keeper.it) == (0 if self.is_gone else len(self.wanted))


TestKeeping = Keeping.TestCase
