"""What is routine. That nothing else follows from it than was said is looked at in each run of the simulator."""

from tests.simulator.groups import GROUP, of_three
from vmq_cluster.raft.messages import Ack, Append, Batch
from vmq_cluster.raft.routine import is_routine


def test_rows_on_their_way_to_all_and_back_are_routine() -> None:
    sim, leader, _ = of_three("os")
    before = sim.routine
    answers: list[str] = []
    for number in range(20):
        answers += sim.put(leader, "s", number)
        sim.run(0.05)
    assert sim.routine - before >= 4 * 20, "two copies, there and back"


def test_what_a_leader_takes_back_or_says_of_files_is_not_routine() -> None:
    sim, leader, [other, _] = of_three("os")
    group = sim.group(other)
    replica = group.replica
    term, end, first = replica.term, replica.log.end, replica.log.first

    def append(*batches: Batch, term: int = term, prev: int = end, first: int = first) -> bool:
        said = Append(term, prev, replica.last_term, list(batches), end, first, 1, (0, 0))
        return is_routine(group, leader, said)

    row = Batch(end, 1, term, 0, (), b"")
    state = Batch(end, 1, term, 3, (), b"")
    assert append(row)
    assert append()
    assert not append(state), "a segment begins"
    assert not append(Batch(end - 1, 1, term, 0, (), b""), prev=end - 1), "it may differ"
    assert not append(row, first=first + 1), "segments go"
    assert not append(row, term=term + 1)
    assert not is_routine(group, "another", Append(term, end, term, [row], end, first, 1, (0, 0)))


def test_a_replica_that_lags_is_no_routine() -> None:
    sim, leader, [other, _] = of_three("os")
    group = sim.group(leader)
    assert group.leading is not None
    progress = group.leading.progress[other]
    term, end = group.replica.term, group.replica.log.end

    def ack(*, agreed: bool = True, life: int = progress.life) -> bool:
        return is_routine(group, other, Ack(term, agreed, end, end, 1, life, True, False))

    assert ack()
    assert not ack(agreed=False)
    assert not ack(life=progress.life + 1)
    progress.lacks_more = True
    assert not ack(), f"much of {GROUP} is to be read"
