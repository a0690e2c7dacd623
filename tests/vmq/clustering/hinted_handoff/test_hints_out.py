"""What a node acknowledged while the sessions' node was down survives the loss of either."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.until import until
from tests.support.wire import DISCONNECT_BYTES, PUBACK, PUBREC, puback_packet, publish_packet
from tests.vmq.clustering.deposit_sim import World
from tests.vmq.clustering.house import (
    NUMBERS,
    House,
    house,
    publish,
    received,
    store_of,
    subscribed,
)
from tests.vmq.clustering.nodes import clustering, hush, is_subscribed, knows, suspend_commits
from tests.vmq.sockets import peer_of
from vmq.clustering.directory.records import Record
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.hinted_handoff.hints_in import KEPT
from vmq.clustering.hinted_handoff.hints_out import HintsOut
from vmq.clustering.messages.replication import KeepHints


def deposits(nodes: House, name: str) -> HintsOut:
    found = nodes.replication(name).keeping.deposits
    assert found is not None
    return found


def kept(nodes: House, name: str) -> int:
    return len(nodes.replication(name).keeping.safekeeping)


def routes(nodes: House, name: str, to: str) -> bool:
    return [each.node for each in nodes[name].registry().route(b"t").nodes] == [to]


async def without_b(nodes: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """`b` has the session `s`, and is down."""
    await subscribed(nodes["b"], "s")
    await until(partial(routes, nodes, "a", "b"))
    await nodes.kill("b", monkeypatch)
    await until(lambda: clustering(nodes["a"]).node.up == ["c"])


async def taken(nodes: House, name: str, client: str, count: int) -> list[bytes]:
    async with peer_of(nodes[name]) as peer:
        assert (await peer.connect(client, clean=False)).session_present
        return await received(peer, count)


@pytest.mark.parametrize("count", (2, 3))
@pytest.mark.parametrize("seed", range(40))
def test_whatever_goes_down_and_comes_back_what_was_acknowledged_arrives(
    seed: int, count: int
) -> None:
    """As long as so many others are up that each message is in `count` stores; once if these are always the same."""
    world = World(seed, count, 3)
    chance = world.random
    is_steady = seed % 4 == 0
    for _ in range(chance.randrange(20, 120)):
        for _ in range(chance.randrange(3)):
            world.publish()
        match chance.randrange(12):
            case 0:
                down = [name for name, is_up in world.is_up.items() if not is_up]
                if down:
                    world.rise(chance.choice(down))
            case 1 if not is_steady:
                keepers = [name for name in world.keepers if world.is_up[name]]
                if len(keepers) > count - 1:
                    world.down(chance.choice(keepers))
            case 2 if world.is_up["o"]:
                world.down("o")
            case 3:
                world.start()
        world.step()
    if seed % 3 == 0:  # with one that has everything
        lost = chance.choice([*world.keepers][: count - 2] or [""])
        world.wipe(lost)
    world.lose()
    assert set(world.outbox.acknowledged) <= set(world.given)
    if is_steady and seed % 3:
        assert len(world.given) == len(set(world.given))
    assert not any(len(keeper.it) for keeper in world.keepers.values())


def test_of_sessions_that_begin_at_a_node_that_is_no_mark_tells() -> None:
    world = World(0, 2, 1)
    world.down("o")
    world.publish()
    began, came = Record("o", 2, False, {"t": 2}), Record("o", 3, False, {"t": 1})
    world.tell_owner("", "new", None, began)
    world.tell_owner("", "comes", Record("k0", 2, False, {}), came)  # of that a mark will
    world.publish()
    world.tell_owner("", "new", began, Record("o", 4, False, {"other": 2}))
    world.publish()
    deposits = [message for message, _ in world.mail["k0"] if isinstance(message, KeepHints)]
    wanted = [kept.clients for message in deposits for kept in message.messages]
    assert wanted == [["s"], ["s", "new"], ["s"]]


@pytest.mark.parametrize("comes_back", ("not", "wiped"))
async def test_what_waits_for_a_node_that_is_down_survives_the_publishers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: str
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await without_b(nodes, monkeypatch)
        await publish(nodes["a"], *NUMBERS)
        assert deposits(nodes, "a").deposited == len(NUMBERS)
        assert kept(nodes, "c")
        async with peer_of(
            nodes["a"]
        ) as peer:  # a repetition waits for what is kept already, and not for more
            await peer.connect("again", clean=False)
            peer.send(publish_packet("u", b"x", qos=2, packet_id=1))
            assert (await peer.packet()).type == PUBREC
            peer.send(publish_packet("u", b"x", qos=2, packet_id=1, dup=True))
            assert (await peer.packet()).type == PUBREC
        await nodes.lose("a", monkeypatch)
        if comes_back == "wiped":
            await until(lambda: clustering(nodes["c"]).node.up == [])
            await nodes.start("a")
        else:
            clustering(nodes["c"]).node.remove("a", force=True)
        await nodes.start("b")
        await until(lambda: not kept(nodes, "c"))
        assert await taken(nodes, "b", "s", len(NUMBERS)) == NUMBERS


async def test_what_its_node_had_taken_before_it_died_does_not_come_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await subscribed(nodes["b"], "s")
        await until(partial(routes, nodes, "a", "b"))
        with monkeypatch.context() as patch:  # it takes them, and dies before it says so
            hush(nodes["b"], patch)
            async with peer_of(nodes["a"]) as peer:
                await peer.connect("p")
                for number, payload in enumerate(NUMBERS, 1):
                    peer.send(publish_packet("t", payload, qos=2, packet_id=number))
                queue = nodes["b"].registry().subscribers["s"].queue
                await until(
                    lambda: queue.backlog == len(NUMBERS) and not store_of(nodes["b"]).dirty
                )
                await nodes.kill("b", monkeypatch)
                for _ in NUMBERS:
                    assert (await peer.packet()).type == PUBREC
        assert kept(nodes, "c")
        await nodes.lose("a", monkeypatch)
        await until(lambda: clustering(nodes["c"]).node.up == [])
        await nodes.start("a")
        b = await nodes.start("b")
        await until(lambda: not kept(nodes, "c"))
        assert nodes.replication("c").keeping.safekeeping.given == 0
        assert b.registry().subscribers["s"].queue.backlog == len(NUMBERS)


async def test_it_goes_to_who_has_the_session_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await without_b(nodes, monkeypatch)
        await publish(nodes["a"], *NUMBERS)
        await nodes.lose("a", monkeypatch)
        for name in "ab":
            clustering(nodes["c"]).node.remove(name, force=True)
        await until(lambda: not kept(nodes, "c"))
        await until(lambda: "s" in nodes["c"].registry().subscribers)
        assert sorted(await taken(nodes, "c", "s", len(NUMBERS))) == sorted(NUMBERS)


async def test_what_has_arrived_is_kept_no_longer_and_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await without_b(nodes, monkeypatch)
        await publish(nodes["a"], *NUMBERS)
        await nodes.start("b")
        await until(lambda: not kept(nodes, "c"))
        assert not list(store_of(nodes["c"]).dirty)
        assert not list(store_of(nodes["c"]).db.iterator(prefix=KEPT))
        await publish(nodes["a"], b"last")
        await nodes.lose("a", monkeypatch)
        clustering(nodes["c"]).node.remove("a", force=True)
        assert await taken(nodes, "b", "s", len(NUMBERS) + 1) == [*NUMBERS, b"last"]
        assert nodes.replication("c").keeping.safekeeping.given == 0


async def test_a_publishers_node_that_starts_again_has_it_kept_until_it_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await without_b(nodes, monkeypatch)
        await publish(nodes["a"], *NUMBERS)
        before = kept(nodes, "c")
        await nodes.kill("a", monkeypatch)
        await until(lambda: clustering(nodes["c"]).node.up == [])
        await nodes.start("a")
        await until(lambda: deposits(nodes, "a").deposited == len(NUMBERS))
        assert kept(nodes, "c") == before
        await nodes.start("b")
        await until(lambda: not kept(nodes, "c"))
        assert await taken(nodes, "b", "s", len(NUMBERS)) == NUMBERS


async def test_two_keepers_give_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(tmp_path, "abcd", replicas=3, adopt_after=3600.0) as nodes:
        await subscribed(nodes["b"], "s")
        await until(partial(routes, nodes, "a", "b"))
        await nodes.kill("b", monkeypatch)
        await until(lambda: clustering(nodes["a"]).node.up == ["c", "d"])
        await publish(nodes["a"], *NUMBERS)
        assert kept(nodes, "c") == kept(nodes, "d") > 0
        await nodes.lose("a", monkeypatch)
        clustering(nodes["c"]).node.remove("a", force=True)
        await nodes.start("b")
        await until(lambda: not kept(nodes, "c") and not kept(nodes, "d"))
        given = [nodes.replication(name).keeping.safekeeping.given for name in "cd"]
        assert sorted(given) == [0, len(NUMBERS)]
        assert await taken(nodes, "b", "s", len(NUMBERS)) == NUMBERS


async def test_others_are_asked_when_who_keeps_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, "abcd", adopt_after=3600.0) as nodes:
        await subscribed(nodes["b"], "s")
        await until(partial(routes, nodes, "a", "b"))
        await nodes.kill("b", monkeypatch)
        await until(lambda: clustering(nodes["a"]).node.up == ["c", "d"])
        await publish(nodes["a"], *NUMBERS)
        first, other = ("c", "d") if kept(nodes, "c") else ("d", "c")
        await nodes.lose(first, monkeypatch)
        await until(lambda: kept(nodes, other) > 0)
        await publish(nodes["a"], b"last")
        await nodes.lose("a", monkeypatch)
        clustering(nodes[other]).node.remove("a", force=True)
        await nodes.start("b")
        await until(lambda: not kept(nodes, other))
        assert await taken(nodes, "b", "s", len(NUMBERS) + 1) == [*NUMBERS, b"last"]


async def without_b_and_one_of_its_sessions(
    nodes: House, monkeypatch: pytest.MonkeyPatch, goes_to: str, *others: str
) -> None:
    """`b` is down, what was published for `s` waits, and a client has had the session go to another node since."""
    await subscribed(nodes["b"], "s", *others)
    await until(partial(routes, nodes, "a", "b"))
    await nodes.kill("b", monkeypatch)
    await until(lambda: "b" not in clustering(nodes["a"]).node.up)
    await publish(nodes["a"], *NUMBERS)
    async with peer_of(nodes[goes_to]) as peer:
        assert (await peer.connect("s", clean=False)).session_present
        peer.send(DISCONNECT_BYTES)
        assert await peer.rest() == b""
    await until(lambda: knows(nodes["a"], "s", goes_to))


def backlog(nodes: House, name: str, client: str) -> int:
    found = nodes[name].registry().subscribers[client]
    return found.queue.backlog


async def test_what_waits_for_sessions_that_others_took_is_kept_anew_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path, "abcd", adopt_after=3600.0) as nodes:
        keeper, other = ranked("a\0b", "cd")
        await without_b_and_one_of_its_sessions(nodes, monkeypatch, other)
        assert kept(nodes, keeper)
        await nodes.kill("a", monkeypatch)
        await nodes.lose(keeper, monkeypatch)
        await until(lambda: clustering(nodes[other]).node.up == [])
        await nodes.start("a")
        await until(lambda: kept(nodes, other) > 0)
        await until(lambda: deposits(nodes, "a").deposited == len(NUMBERS))
        await nodes.lose("a", monkeypatch)
        clustering(nodes[other]).node.remove("a", force=True)
        await nodes.start("b")
        await until(lambda: not kept(nodes, other))
        await until(lambda: backlog(nodes, other, "s") == len(NUMBERS))
        assert await taken(nodes, other, "s", len(NUMBERS)) == NUMBERS


async def test_what_others_get_since_a_session_has_gone_is_not_kept_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come to the session on its own way."""
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await without_b_and_one_of_its_sessions(nodes, monkeypatch, "c", "stays")
        since = [b"since %d" % number for number in range(5)]
        await publish(nodes["a"], *since)
        assert backlog(nodes, "c", "s") == len(since)
        await nodes.lose("a", monkeypatch)
        clustering(nodes["c"]).node.remove("a", force=True)
        await nodes.start("b")
        await until(lambda: not kept(nodes, "c"))
        await until(lambda: backlog(nodes, "b", "stays") == len(NUMBERS + since))
        assert nodes.replication("c").keeping.safekeeping.given == len(NUMBERS + NUMBERS + since)
        assert sorted(await taken(nodes, "c", "s", len(NUMBERS + since))) == sorted(NUMBERS + since)
        assert not backlog(nodes, "c", "s")


async def test_it_is_kept_for_sessions_that_begin_meanwhile_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the publisher's node does not reach theirs: it hears of them from others."""
    async with house(tmp_path, adopt_after=3600.0) as nodes:
        await subscribed(nodes["b"], "s")
        await until(partial(routes, nodes, "a", "b"))
        await nodes.part("a", "b")
        await publish(nodes["a"], b"first")
        assert kept(nodes, "c")
        await subscribed(nodes["b"], "new")
        await until(lambda: is_subscribed(nodes["a"], "new", "b"))
        await publish(nodes["a"], b"second")
        await nodes.lose("a", monkeypatch)
        clustering(nodes["c"]).node.remove("a", force=True)
        await until(lambda: not kept(nodes, "c"))
        await until(lambda: backlog(nodes, "b", "s") == 2)
        assert await taken(nodes, "b", "new", 1) == [b"second"]


async def test_an_acknowledgement_waits_for_the_store_of_the_sessions_node_while_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer than the limit, when that takes nothing."""
    async with house(tmp_path, "ab", replica_timeout=1.0) as nodes:
        await subscribed(nodes["b"], "s")
        await until(partial(routes, nodes, "a", "b"))
        outbox = clustering(nodes["a"]).outboxes.find_lane("b")
        assert outbox is not None
        await publish(nodes["a"], b"quick")
        assert not outbox.has_any()
        with monkeypatch.context() as patch:
            suspend_commits(nodes["b"], patch)
            async with peer_of(nodes["a"]) as peer:
                await peer.connect("p")
                peer.send(publish_packet("t", b"x", qos=1, packet_id=1))
                await until(lambda: bool(outbox.awaited))
                peer.send(b"\xc0\x00")
                await peer.expect(b"\xd0\x00")  # which waits for nobody
                await peer.expect(puback_packet(1))
                assert not outbox.awaited
        nodes["b"].parts.committer.commit()
        assert await taken(nodes, "b", "s", 2) == [b"quick", b"x"]


async def test_nobody_waits_for_sessions_that_end_with_their_node(tmp_path: Path) -> None:
    async with house(tmp_path, "ab") as nodes, peer_of(nodes["b"]) as peer:
        await peer.connect("s")
        peer.send(b"\x82\x06\x00\x01\x00\x01t\x01")
        await peer.packet()
        await until(partial(routes, nodes, "a", "b"))
        [target] = nodes["a"].registry().route(b"t").nodes
        assert not target.keeps
        async with peer_of(nodes["a"]) as publisher:
            await publisher.connect("p")
            publisher.send(publish_packet("t", b"x", qos=1, packet_id=1))
            assert (await publisher.packet()).type == PUBACK
        assert await received(peer, 1) == [b"x"]
