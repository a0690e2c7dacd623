"""The coordinator of a group: what each step does, and random walks against a model that knows nothing of how."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vmq.streams.groups.machine import Effect, GivePartition, GroupMachine, TakePartition


def test_one_member_has_all_and_a_second_half_of_them() -> None:
    machine = GroupMachine(4)
    assert machine.join("a") == [GivePartition("a", number, number + 1) for number in range(4)]
    assert machine.join("b") == [TakePartition("a", 2), TakePartition("a", 3)]
    assert machine.of("a") == [0, 1, 2, 3]
    assert machine.release("a", 2, 3) == [GivePartition("b", 2, 5)]
    assert machine.release("a", 3, 4) == [GivePartition("b", 3, 6)]
    assert (machine.of("a"), machine.of("b")) == ([0, 1], [2, 3])


def test_members_without_a_partition_stand_by() -> None:
    machine = GroupMachine(1)
    machine.join("a")
    assert machine.join("b") == []
    assert machine.standing_by() == ["b"]
    assert machine.leave("a") == [GivePartition("b", 0, 2)]


def test_who_names_an_older_generation_is_fenced() -> None:
    machine = GroupMachine(1)
    machine.join("a")
    assert machine.may_commit("a", 0, 1)
    machine.stall("a")
    assert not machine.may_commit("a", 0, 1)
    machine.recover("a")
    assert not machine.may_commit("a", 0, 1)
    assert machine.may_commit("a", 0, 2)
    assert machine.release("a", 0, 1) == []
    assert machine.of("a") == [0]


def test_a_member_keeps_what_it_has() -> None:
    machine = GroupMachine(6)
    for member in "ab":
        for effect in machine.join(member):
            if isinstance(effect, TakePartition):
                machine.release(
                    effect.member, effect.partition, machine.holds[effect.partition].generation
                )
    before = {member: machine.of(member) for member in "ab"}
    machine.join("c")
    taken = [number for number, hold in machine.holds.items() if hold.is_leaving]
    assert len(taken) == 2
    for number in taken:
        hold = machine.holds[number]
        machine.release(hold.member, number, hold.generation)
    for member in "ab":
        assert set(machine.of(member)) < set(before[member])
    assert machine.of("c") == sorted(taken)


class Walk(RuleBasedStateMachine):
    """Members that come, go, stall and give back in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = GroupMachine(3)
        #: What the members were told: who sends for which partition, in which generation, and who is to stop.
        self.sends: dict[int, tuple[str, int]] = {}
        self.leaving: set[int] = set()
        self.stalled: set[str] = set()
        self.there: set[str] = set()
        self.generations: set[int] = set()

    def obey(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GivePartition):
                assert effect.partition not in self.sends, "two members send for one partition"
                assert effect.member in self.there - self.stalled
                assert effect.generation not in self.generations
                self.generations.add(effect.generation)
                self.sends[effect.partition] = effect.member, effect.generation
            else:
                assert self.sends[effect.partition][0] == effect.member
                assert effect.partition not in self.leaving, "it was told before"
                self.leaving.add(effect.partition)

    def drop(self, member: str) -> None:
        for number in [number for number, (who, _) in self.sends.items() if who == member]:
            del self.sends[number]
            self.leaving.discard(number)

    @rule(member=st.sampled_from("abcdef"))
    def join(self, member: str) -> None:
        self.there.add(member)
        self.obey(self.machine.join(member))

    @rule(member=st.sampled_from("abcdef"))
    def leave(self, member: str) -> None:
        self.there.discard(member)
        self.stalled.discard(member)
        self.drop(member)
        self.obey(self.machine.leave(member))

    @rule(member=st.sampled_from("abcdef"))
    def stall(self, member: str) -> None:
        if member in self.there:
            self.stalled.add(member)
        self.drop(member)
        self.obey(self.machine.stall(member))

    @rule(member=st.sampled_from("abcdef"))
    def recover(self, member: str) -> None:
        self.stalled.discard(member)
        self.obey(self.machine.recover(member))

    @precondition(lambda self: self.leaving)
    @rule(chance=st.randoms(use_true_random=False))
    def give_back(self, chance: object) -> None:
        number = chance.choice(sorted(self.leaving))  # type: ignore[attr-defined]
        self.leaving.discard(number)
        member, generation = self.sends.pop(number)
        self.obey(self.machine.release(member, number, generation))

    @rule(member=st.sampled_from("abcdef"), number=st.integers(0, 5), generation=st.integers(0, 30))
    def give_back_what_it_has_not(self, member: str, number: int, generation: int) -> None:
        if self.sends.get(number) != (member, generation):
            self.obey(self.machine.release(member, number, generation))

    @precondition(lambda self: self.machine.partitions < 8)
    @rule()
    def grow(self) -> None:
        self.obey(self.machine.grow(self.machine.partitions + 1))

    @invariant()
    def both_agree(self) -> None:
        machine = self.machine
        assert {number: hold[:2] for number, hold in machine.holds.items()} == self.sends
        active = self.there - self.stalled
        if not active:
            return
        kept = dict.fromkeys(active, 0)
        for number, (member, _) in self.sends.items():
            if number not in self.leaving:
                kept[member] += 1
        most = -(-machine.partitions // len(active))
        assert max(kept.values()) <= most
        # Nothing lies about that nobody reads and nobody is about to get.
        free = machine.partitions - len(self.sends)
        assert free == 0
        if not self.leaving:
            assert min(kept.values()) >= machine.partitions // len(active)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
