"""The whole node: frames in and out, and what a peer may do to it."""

from functools import partial

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.machines import Sim, joined, ready
from tests.simulator.seeds import over_seeds
from vmq_cluster.clocks import MAX_COUNTER, MAX_NUMBER
from vmq_cluster.effects import Misbehaved, Transmit
from vmq_cluster.messages import (
    AnyMessage,
    Frame,
    Gossip,
    Graft,
    Heartbeat,
    IHave,
    MemberRecord,
    Members,
    Prune,
    Received,
    Reliable,
    StaleEpoch,
    SyncBatch,
    SyncRequest,
    Unreliable,
    WireEntry,
    decode,
    encode,
)

POSITIVE = st.one_of(st.integers(1, 4), st.just(MAX_NUMBER))
COUNTER = st.one_of(st.integers(1, 4), st.just(MAX_COUNTER))
NUMBER = st.one_of(st.integers(0, 4), st.just(MAX_NUMBER))
SMALL = st.binary(max_size=3)
CLOCKS = st.dictionaries(POSITIVE, st.lists(POSITIVE, max_size=4), max_size=2)
IDS = st.tuples(st.integers(0, 2), POSITIVE, COUNTER)
SIBLINGS = st.lists(st.tuples(POSITIVE, COUNTER, NUMBER, st.none() | SMALL), max_size=2)
ENTRIES = st.builds(
    WireEntry,
    st.binary(min_size=1, max_size=4),
    SIBLINGS,
    st.dictionaries(POSITIVE, COUNTER, max_size=2),
)
RECORDS = st.builds(
    MemberRecord,
    st.sampled_from(["n000", "n001", "x"]),
    POSITIVE,
    st.integers(0, 4),
    NUMBER,
    st.just("x"),
)
MESSAGES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(Heartbeat, NUMBER),
    st.builds(Members, st.lists(RECORDS, max_size=2), st.booleans(), NUMBER),
    st.builds(StaleEpoch, POSITIVE),
    st.builds(Gossip, IDS, SMALL),
    st.builds(lambda each, entry: Gossip(each, encode_entry(entry)), IDS, ENTRIES),
    st.builds(IHave, st.lists(IDS, max_size=3)),
    st.builds(Graft, IDS),
    st.builds(Prune),
    st.builds(SyncRequest, POSITIVE, POSITIVE, CLOCKS, CLOCKS, st.booleans(), SMALL, SMALL),
    st.builds(
        SyncBatch,
        POSITIVE,
        POSITIVE,
        CLOCKS,
        CLOCKS,
        st.booleans(),
        st.lists(ENTRIES, max_size=2),
        st.none() | SMALL,
    ),
    st.builds(Reliable, POSITIVE, COUNTER, COUNTER, st.lists(SMALL, max_size=3)),
    st.builds(Received, POSITIVE, NUMBER),
    st.builds(Unreliable, st.lists(SMALL, max_size=3)),
)


def encode_entry(entry: WireEntry) -> bytes:
    return msgspec.msgpack.encode(entry)


@settings(max_examples=60)
@given(st.lists(MESSAGES, max_size=12))
def test_whatever_a_peer_says_the_node_goes_on(said: list[AnyMessage]) -> None:
    sim, names = ready(Sim(1), 2)
    machine = sim[names[0]]
    peer = sim[names[1]].identity
    frames = 10**6
    for message in said:
        if isinstance(message, SyncRequest | SyncBatch):
            message.incarnation = peer.incarnation
        frames += 1
        machine.receive(Frame(1, names[1], peer.epoch, frames, [message]), sim.now)
        machine.tick(sim.now + frames - 10**6)
    machine.metadata.put("p", b"k", b"v")
    assert machine.metadata.get("p", b"k") is not None
    for effect in machine.flush(sim.now + 10**3):
        if isinstance(effect, Transmit):
            assert decode(encode(effect.frame)) == effect.frame


def test_frames_come_once_and_never_from_an_earlier_life() -> None:
    sim, names = ready(Sim(2), 2)
    machine = sim[names[0]]
    epoch = sim[names[1]].identity.epoch + 5

    def arrives(epoch: int, number: int) -> list[object]:
        frame = Frame(1, names[1], epoch, number, [Unreliable([b"x"])])
        return list(machine.receive(frame, sim.now))

    assert arrives(epoch, 3)
    assert not arrives(epoch, 3)
    assert not arrives(epoch, 2)
    assert arrives(epoch + 1, 1)
    (effect,) = arrives(epoch, 9)
    assert isinstance(effect, Transmit)
    assert effect.frame.messages == [StaleEpoch(epoch + 1)]
    assert arrives(epoch + 1, 2)


def test_a_node_ignores_frames_in_its_own_name() -> None:
    sim = Sim(3)
    machine = sim.add("a")
    assert not machine.receive(Frame(1, "a", 1, 1, [Heartbeat(0)]), sim.now)


def test_a_large_pass_is_cut_into_frames() -> None:
    sim, names = ready(Sim(4), 2)
    machine = sim[names[0]]
    for number in range(12):
        machine.metadata.put("p", b"%d" % number, b"v" * 300_000)
    frames = [e.frame for e in machine.flush(sim.now) if isinstance(e, Transmit)]
    assert len(frames) == 3
    assert all(len(encode(frame)) < 2_000_000 for frame in frames)
    numbers = [frame.number for frame in frames]
    assert numbers == sorted(set(numbers))


@over_seeds(12)
def test_a_broken_link_is_known_at_once_and_mended_by_the_next_frame(seed: int) -> None:
    sim, names = joined(Sim(seed), 3)
    sim.ask(names[0], partial(sim[names[0]].lost, names[1], "broke", sim.now))
    assert not sim[names[0]].detector.is_up(names[1])
    sim.until(lambda: sim.is_joined(names), 3)


def test_nonsense_ends_the_frame_and_not_the_node() -> None:
    sim, names = ready(Sim(5), 2)
    machine = sim[names[0]]
    messages: list[AnyMessage] = [Unreliable([b"1"]), Graft((9, 1, 1)), Unreliable([b"2"])]
    frame = Frame(1, names[1], sim[names[1]].identity.epoch, 10**6, messages)
    kinds = [type(effect) for effect in machine.receive(frame, sim.now)]
    assert kinds.count(Misbehaved) == 1
    assert len([kind for kind in kinds if kind.__name__ == "Arrived"]) == 1
