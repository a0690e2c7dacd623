"""What `why` says, compared with what then happens."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from tests.support.present import present
from vmq.admin.errors import AdminError
from vmq.admin.listing import Selection
from vmq.admin.queues import peek
from vmq.admin.why import Explanation, Publish, explain
from vmq.broker import Broker
from vmq.config.options import Config, LimitOptions, QueueOptions, SessionOptions

PLAIN = ("t/a", "t/+", "t/#", "#", "t/b")
# Not both for one client: `why` judges each subscription by the state as it is, not as the others leave it.
SHARED = ("$share/g/t/a", "$share/h/t/b")
ARRIVES = ("sent", "queued", "stored")


async def ask(node: Broker, topic: str = "t/a", client_id: str = "pub", **more: Any) -> Explanation:
    return await explain(node, Publish(client_id=client_id, topic=topic, **more))


def step(explanation: Explanation, name: str) -> tuple[str, str]:
    return next((each.verdict, each.reason) for each in explanation.steps if each.step == name)


def crowd(node: Broker, random: Random) -> list[Peer]:
    """Subscribers in every state that a queue knows."""
    peers: list[Peer] = []
    filler = Peer(node.registry(), "filler")
    for number in range(8):
        peer = Peer(node.registry(), f"c{number}", clean=random.random() < 0.4)
        own = f"own/{number}"
        peer.subscribe((own, 1))
        filters = PLAIN if random.random() < 0.5 else SHARED
        for topic_filter in random.sample(filters, random.randint(1, len(filters))):
            peer.subscribe((topic_filter, random.randint(0, 2)))
        fate = random.choice(["ready", "blocked", "window", "full", "away", "away full"])
        if fate == "blocked":
            peer.block()
        elif fate == "window":
            for _ in range(3):
                filler.publish(own, qos=1)
        elif fate == "full":
            for _ in range(10):
                filler.publish(own, qos=1)
        elif fate.startswith("away"):
            peer.leave()
            if fate == "away full":
                for _ in range(10):
                    filler.publish(own, qos=1)
        peers.append(peer)
    return peers


async def has(node: Broker, peer: Peer, payload: bytes) -> bool:
    """Whether a message was sent to a client or is in its queue."""
    if payload in peer.received:
        return True
    if peer.client_id not in node.registry().subscribers:
        return False
    rows = await peek(node, peer.client_id, Selection(limit=0)).rows()
    return any(row.payload == payload.decode() for row in rows)


@pytest.mark.parametrize("seed", range(25))
async def test_what_it_says_is_what_happens(config: Config, seed: int) -> None:
    random = Random(seed)
    queue = QueueOptions(
        max_inflight_messages=2,
        max_online_messages=random.choice([3, 5]),
        max_offline_messages=random.choice([0, 4]),
        drop=random.choice(["newest", "oldest"]),
        overflow=random.choice(["drop", "pause_publisher"]),
    )
    session = SessionOptions(upgrade_outgoing_qos=random.random() < 0.2)
    async with Broker(replace(config, queue=queue, session=session)) as node:
        peers = crowd(node, random)
        publisher = Peer(node.registry(), "pub")
        qos = random.randint(0, 2)
        payload = b"<the one>"
        said = await ask(node, qos=qos, size=len(payload))
        publisher.publish("t/a", payload, qos=qos)

        plain = [each for each in said.recipients if not each.filter.startswith("$share/")]
        shared = [each for each in said.recipients if each.filter.startswith("$share/")]
        got = {peer.client_id for peer in peers if await has(node, peer, payload)}
        certain = {each.client_id for each in plain if each.outcome in ARRIVES}
        certain |= {each.client_id for each in shared if each.outcome in ARRIVES}
        possible = {each.client_id for each in shared if each.outcome == "candidate"}
        assert certain <= got <= certain | possible
        for name in {each.filter for each in shared}:
            members = [each for each in shared if each.filter == name]
            rivals = {each.client_id for each in members if each.outcome == "candidate"}
            may_be_lost = any(each.outcome == "dropped" for each in members)
            assert not rivals or may_be_lost or rivals & got
        assert said.arrives is bool(certain | possible)
        sent = {each.client_id for each in plain if each.outcome == "sent"}
        assert sent <= {peer.client_id for peer in peers if payload in peer.received}
        queued = {each.client_id for each in plain if each.outcome in ("queued", "stored")}
        assert not queued & {peer.client_id for peer in peers if payload in peer.received}


async def test_nothing_changes(node: Broker) -> None:
    peers = crowd(node, Random(5))
    Peer(node.registry(), "pub")
    registry = node.registry()
    registry.core.choose = lambda count: pytest.fail(f"chose among {count}")
    counters = registry.core.counters
    before = {name: getattr(counters, name) for name in dir(counters) if name[0] != "_"}
    routes = dict(registry.routes.young)
    received = [bytes(peer.received) for peer in peers]
    queues = [each.queue.waiting() for each in registry.subscribers.values()]
    store = present(registry.core.store)
    writes = store.writes

    assert (await ask(node, qos=1, retain=True, size=10)).arrives

    assert {name: getattr(counters, name) for name in dir(counters) if name[0] != "_"} == before
    assert registry.routes.young == routes
    assert [bytes(peer.received) for peer in peers] == received
    assert [each.queue.waiting() for each in registry.subscribers.values()] == queues
    assert registry.retained.count == 0
    assert store.writes == writes


async def test_reasons_of_the_queue(config: Config) -> None:
    queue = QueueOptions(max_inflight_messages=1, max_online_messages=2, max_offline_messages=1)
    async with Broker(replace(config, queue=queue)) as node:
        pub = Peer(node.registry(), "pub")
        me = Peer(node.registry(), "me", ("t/+", 1), clean=False)

        async def outcome(qos: int = 1) -> tuple[str, str]:
            found = (await ask(node, qos=qos)).recipients[0]
            return found.outcome, found.reason

        assert await outcome() == ("sent", "connected, and nothing waits before it")
        assert await outcome(0) == ("sent", "connected, and its socket takes it")
        pub.publish("t/a", qos=1)
        what, reason = await outcome()
        assert what == "queued"
        assert "1 await its acknowledgement (queue.max_inflight_messages)" in reason
        assert "0 wait of 2" in reason
        pub.publish("t/a", qos=1)
        assert "others wait before it" in (await outcome())[1]
        pub.publish("t/a", qos=1)
        what, reason = await outcome()
        assert what == "dropped"
        assert "the queue is full (queue.max_online_messages = 2)" in reason
        assert "queue.drop gives up what arrives" in reason
        me.leave()
        what, reason = await outcome()
        assert what == "dropped"
        assert "not connected" in reason
        assert "queue.max_offline_messages = 1" in reason
        seen = await outcome(0)
        assert seen == ("dropped", "the client is not connected, and QoS 0 is kept for nobody")


async def test_the_publisher_s_own_state(node: Broker) -> None:
    said = await ask(node)
    assert not said.arrives
    assert step(said, "client") == ("stop", "the client is not connected, and has no session")
    assert said.verdict == "It goes nowhere: the client is not connected, and has no session"
    pub = Peer(node.registry(), "pub", clean=False)
    assert step(await ask(node), "client") == ("ok", "connected from 10.0.0.1:5000")
    assert (await ask(node)).verdict == "It goes nowhere: no subscription matches the topic"
    node.registry().core.memory_is_high = True
    pub.publish("x")
    verdict, reason = step(await ask(node), "client")
    assert verdict == "note"
    assert "memory is above limits.max_memory" in reason
    pub.leave()
    assert "its session waits for it" in step(await ask(node), "client")[1]


async def test_limits(config: Config) -> None:
    limits = LimitOptions(max_message_size=10, topic_max_depth=3, max_retained_messages=1)
    session = SessionOptions(max_packet_size=100)
    async with Broker(replace(config, limits=limits, session=session)) as node:
        pub = Peer(node.registry(), "pub", ("#", 0))
        assert (await ask(node, size=10)).arrives
        said = await ask(node, size=11)
        assert not said.arrives
        assert "limits.max_message_size is 10: the connection is closed" in step(said, "size")[1]
        said = await ask(node, "x" * 100)
        assert "session.max_packet_size is 100" in step(said, "size")[1]
        said = await ask(node, "a/b/c/d")
        assert "limits.topic_max_depth is 3" in step(said, "topic")[1]
        assert said.recipients == []
        assert (await ask(node, "a/b/c")).arrives

        assert step(await ask(node, retain=True, size=5), "retain")[0] == "ok"
        pub.publish("kept", b"12345", retain=True)
        verdict, reason = step(await ask(node, retain=True, size=5), "retain")
        assert verdict == "note"
        assert "max_retained_messages" in reason


@pytest.mark.parametrize(
    ("size", "limit", "ends"), [(0, 64, False), (55, 64, False), (56, 64, True)]
)
async def test_the_size_of_a_packet_is_what_the_session_measures(
    config: Config, size: int, limit: int, ends: bool
) -> None:
    # QoS 1 on "t/a": a fixed header of two bytes, two of length, three of topic, two of packet id.
    session = SessionOptions(max_packet_size=limit)
    async with Broker(replace(config, session=session)) as node:
        pub = Peer(node.registry(), "pub", ("#", 0))
        said = await ask(node, qos=1, size=size)
        pub.publish("t/a", b"x" * size, qos=1)
        assert pub.is_open is not ends
        assert said.arrives is not ends


@pytest.mark.parametrize("topic", ["", "a/#", "a/+", "a\0b", "x" * 70_000])
async def test_a_bad_topic_goes_nowhere(node: Broker, topic: str) -> None:
    Peer(node.registry(), "pub", ("#", 0))
    said = await ask(node, topic)
    assert step(said, "topic")[0] == "stop"
    assert not said.arrives


async def test_retained_effects(node: Broker) -> None:
    pub = Peer(node.registry(), "pub")
    found = step(await ask(node, retain=True, size=1), "retain")[1]
    assert found == "it is kept, for later subscribers"
    assert "there is none" in step(await ask(node, retain=True, size=0), "retain")[1]
    pub.publish("t/a", b"12345", retain=True)
    assert "replaces one of 5 bytes" in step(await ask(node, retain=True, size=1), "retain")[1]
    assert "erases the topic's" in step(await ask(node, retain=True, size=0), "retain")[1]
    assert "stays" in step(await ask(node), "retain")[1]


async def test_one_copy_by_the_best_subscription(node: Broker) -> None:
    Peer(node.registry(), "pub")
    Peer(node.registry(), "me", ("t/+", 0), ("t/a", 2))
    found = {each.filter: each for each in (await ask(node, qos=1)).recipients}
    assert (found["t/a"].outcome, found["t/a"].qos) == ("sent", 1)
    assert found["t/+"].outcome == "passed over"
    assert "by 't/a'" in found["t/+"].reason


async def test_share_groups_name_who_would_be_chosen_among_whom(node: Broker) -> None:
    Peer(node.registry(), "pub")
    members = [Peer(node.registry(), f"m{number}") for number in range(3)]
    for member in members:
        member.subscribe(("$share/g/t/a", 1))
    members[2].block()
    said = await ask(node, qos=1)
    outcomes = {each.client_id: each.outcome for each in said.recipients}
    assert outcomes == {"m0": "candidate", "m1": "candidate", "m2": "passed over"}
    assert "one of 2 is chosen at random" in said.recipients[0].reason
    assert said.verdict == "It goes to one member of each of 1 share group(s)"
    members[1].leave()
    said = await ask(node, qos=1)
    found = {each.client_id: each.outcome for each in said.recipients}
    assert found == {"m0": "sent", "m2": "passed over"}


async def test_a_netsplit_is_told(node: Broker) -> None:
    core = node.registry().core
    core.cluster_is_split = True
    (step,) = [
        each
        for each in (await explain(node, Publish(client_id="p", topic="t"))).steps
        if each.step == "cluster"
    ]
    assert (step.verdict, step.reason) == ("note", "a member of the cluster cannot be reached")
    core.options.allow_publish_during_netsplit = False
    found = await explain(node, Publish(client_id="p", topic="t"))
    (step,) = [each for each in found.steps if each.step == "cluster"]
    assert step.verdict == "stop"
    assert "allow_publish_during_netsplit is off" in step.reason
    assert not found.arrives


async def test_hooks_are_named(node: Broker) -> None:
    Peer(node.registry(), "pub")
    assert [each.step for each in (await ask(node)).steps] == ["client", "topic", "rights", "match"]
    assert step(await ask(node), "rights") == ("ok", "no plugin is asked: it is free")
    node.hooks.on_deliver = lambda *_given: None
    verdict, reason = step(await ask(node), "hooks")
    assert verdict == "note"
    assert "on_deliver" in reason


async def test_a_store_that_fails_is_told(node: Broker) -> None:
    Peer(node.registry(), "pub")
    store = present(node.registry().core.store)
    store.failing = True
    said = "the store cannot write: what had to be stored is refused"
    assert step(await ask(node, qos=1), "store")[1] == said
    store.failing = False


async def test_an_impossible_qos_is_refused(node: Broker) -> None:
    with pytest.raises(AdminError, match="accepted: 0, 1, 2"):
        await ask(node, qos=3)
