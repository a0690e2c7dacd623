"""Bans of a cluster: said to one node, they hold on all of them."""

from pathlib import Path

from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, config, pair, together
from tests.vmq.sockets import peer_of, session_of
from vmq.admin.bans import add_ban, list_bans, remove_ban
from vmq.broker import Broker
from vmq.clustering.node.bans import BANS


def values(broker: Broker) -> list[str]:
    return sorted(each.value for each in list_bans(broker))


async def test_a_ban_holds_on_every_node_and_ends_there_too(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b), session_of(b, "c") as peer:
        add_ban(a, client_id="c", seconds=3600, reason="floods")
        assert await peer.rest() == b"", "its connection elsewhere ends"
        async with peer_of(b) as again:
            assert (await again.connect("c")).return_code == 5
        assert list_bans(a) == list_bans(b)
        remove_ban(b, client_id="c")
        await until(lambda: list_bans(a) == [])
        async with peer_of(a) as again:
            assert (await again.connect("c")).return_code == 0


async def test_a_node_that_was_away_learns_what_was_said_meanwhile(tmp_path: Path) -> None:
    first = config(tmp_path, "a")
    async with Broker(first) as a:
        second = config(tmp_path, "b", [address(a)])
        async with Broker(second) as b:
            await together(a, b)
            add_ban(a, user="ann")
            add_ban(b, client_id="old")
            await until(lambda: values(a) == values(b) == ["ann", "old"])
        add_ban(a, address="192.0.2.0/24")
        remove_ban(a, client_id="old")
        async with Broker(second) as b:
            await until(lambda: values(b) == ["192.0.2.0/24", "ann"])
            assert values(a) == ["192.0.2.0/24", "ann"]


async def test_what_a_node_had_banned_before_it_joined_holds_everywhere(tmp_path: Path) -> None:
    alone = config(tmp_path, "b")
    async with Broker(alone) as b:
        add_ban(b, user="eve")
    async with Broker(config(tmp_path, "a")) as a, Broker(config(tmp_path, "b", [address(a)])) as b:
        await together(a, b)
        await until(lambda: values(a) == ["eve"])


async def test_what_has_ended_by_itself_does_not_stay_in_the_metadata(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        add_ban(a, client_id="short", seconds=0.001)
        later = a.banning.bans.now() + 7200
        a.banning.bans._clock = lambda: later
        add_ban(a, client_id="next")
        assert [key for key, _ in clustering(a).node.items(BANS)] == [b"client_id\0next"]


async def test_what_no_broker_has_written_is_no_ban(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        clustering(a).node.put(BANS, b"moon\0x", b'{"kind": "moon", "value": "x", "since": 0}')
        clustering(a).node.put(BANS, b"address\0x", b"{")
        add_ban(a, client_id="c")
        await until(lambda: values(b) == ["c"])
