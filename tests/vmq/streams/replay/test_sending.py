"""How far a replay is: against a set of what is acknowledged."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.until import until
from tests.support.wire import puback_packet
from tests.vmq.sockets import peer_of
from tests.vmq.streams.replay.test_packets import broker_with
from tests.vmq.streams.replay.test_port import readers, reading, row_of
from tests.vmq.support import House, subscribed
from vmq.core.inflight import MOST_TRANSIENT
from vmq.streams.replay.sending import Progress, ReplaySender, SentRow, SentRun

# Each is the distance to the next offset, and whether it was a row that went out (else what was left out).
STEPS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=40)


@given(STEPS, st.randoms(use_true_random=False))
def test_no_row_that_is_not_acknowledged_is_passed(
    steps: list[tuple[int, bool]], chance: "object"
) -> None:
    progress = Progress(10)
    at = 10
    waiting: list[tuple[int, SentRow]] = []
    for distance, is_row in steps:
        at += distance
        if is_row:
            waiting.append((at, progress.send(at)))
        else:
            progress.skip(at)
        assert progress.done <= (waiting[0][0] - 1 if waiting else at)
    if not waiting:
        assert progress.done == at
    assert progress.waiting() == len(waiting)
    order = list(waiting)
    chance.shuffle(order)  # type: ignore[attr-defined]
    left = dict(waiting)
    moved = progress.done
    for following, row in order:
        moved += progress.finish(row)
        del left[following]
        assert progress.done == moved
        # Nothing that is left is passed, and nothing is held back by what is done.
        assert progress.done < min(left, default=at + 1)
    assert progress.done == at


async def test_a_run_that_is_acknowledged_whole_is_passed(tmp_path: Path) -> None:
    """Though nothing of the run behind it is acknowledged yet; at once, or packet by packet."""
    many = 900
    async with broker_with(tmp_path, many, 90) as broker, peer_of(broker) as peer:
        await reading(peer, "$replay/@x;from=earliest/s/#")
        ids = [(await row_of(peer)).packet_id or 0 for _ in range(many)]
        (replay,) = readers(broker).by_number.values()
        progress = replay.sender.progress[0]
        runs = [each.left for each in progress.order if isinstance(each, SentRun)]
        assert len(runs) > 3

        def leaves(count: int) -> Callable[[], bool]:
            return lambda: replay.sender.waiting == count

        done = 0
        for number, count in enumerate(runs):
            acks = [puback_packet(each) for each in ids[done : done + count]]
            done += count
            for each in acks if number % 2 else [b"".join(acks)]:
                peer.send(each)
            await until(leaves(many - done))
            assert replay.sender.positions() == {0: done}
            assert progress.done == done
        assert done == many


def test_messages_may_have_all_packet_ids(house: House) -> None:
    """A replay that has none of its own under way waits for one."""
    house.options.max_inflight_messages = 0
    client = subscribed(house)
    sender = ReplaySender(house.core, client.queue, 1, 1, 10)
    assert sender.has_place(0)
    for _ in range(MOST_TRANSIENT):
        house.publish("t", b"", 1)
    assert not sender.has_place(0)
    client.send(puback_packet(1))
    assert sender.has_place(0)
