"""What is shown of sessions in slots: where they are, how long their queues are, and who has which slots."""

from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.running.slotted import SLOTS, named, owner_of, service, slotted
from vmq.admin import cluster, queues, sessions, why, why_receive
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import Selection
from vmq.broker import Broker
from vmq.clustering.node import session_questions
from vmq.clustering.running import status
from vmq.http.status import status_of


async def test_a_session_is_shown_at_any_node_with_its_queue(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        a, b = nodes["a"], nodes["b"]
        async with Device(named(nodes, "b", "s"), username="alice") as device:
            await device.connect(a)
            device.answers = False
            await device.subscribe(("t", 1))
            await b.publish("t", b"1", 1)
            await device.until(lambda: device.log == ["1"])
            for node in (a, b):
                shown = await sessions.show_session(node, device.client_id)
                assert (shown.node, shown.is_online, shown.clean_session) == ("a", True, False)
                assert (shown.queue_size, shown.waiting_acks, shown.user) == (0, 1, "alice")
                assert [each.filter for each in shown.filters] == ["t"]
            await device.disconnect()
            await b.publish("t", b"2", 1)
            for node in (a, b):
                shown = await sessions.show_session(node, device.client_id)
                assert (shown.node, shown.is_online, shown.queue_size) == ("b", False, 1)
                assert shown.offline_since is not None
                _, user = await why.client_step(node, node.registry(), "", device.client_id)
                assert user == "alice"
                said = await why.explain(node, why.Publish(client_id=device.client_id, topic="t"))
                assert (
                    said.steps[0].reason == "the client is not connected; its session waits for it"
                )
                for topic, qos, verdict in (
                    ("t", 1, "It receives it: stored"),
                    ("t", 0, "It does not receive it: t: dropped: "),
                    ("u", 1, "It does not receive it: none of its 1 subscription(s) matches u"),
                ):
                    wanted = why_receive.Receive(client_id=device.client_id, topic=topic, qos=qos)
                    assert (await why_receive.explain(node, wanted)).verdict.startswith(verdict)
            (row,) = [each for each in cluster.list_members(b) if each.is_self]
            assert (row.offline, row.sessions) == (1, 1 + (row.online or 0))
            # The one that is connected is this test, which has published at b.
            assert status_of(b)["sessions"] == {"total": 2, "connected": 1, "offline": 1}
            assert status_of(a)["sessions"]["offline"] == 0
            listed = sessions.list_sessions(b, Selection())
            assert device.client_id in [each.client_id for each in await listed.rows()]
            assert (await sessions.disconnect(a, device.client_id, cleanup=True)).session_ended
            await until(lambda: service(b).status.figures(device.client_id) is None)


async def test_who_asks_another_node_for_a_queue_is_told_whose_it_is(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        a, b = nodes["a"], nodes["b"]
        async with (
            Device(named(nodes, "b", "s")) as device,
            Device(named(nodes, "b", "c"), clean=True) as clean,
        ):
            await clean.connect(a)
            assert await queues.peek(a, clean.client_id, Selection()).rows() == []
            await device.connect(a, ("t", 1))
            for is_connected in (True, False):
                if not is_connected:
                    await device.disconnect()
                    await b.publish("t", b"1", 1)
                with pytest.raises(NotFoundError, match="is with node 'b', which owns its slot"):
                    queues.peek(a, device.client_id, Selection())
                with pytest.raises(NotFoundError, match="is with node 'b'"):
                    await queues.purge(a, device.client_id)
            (row,) = await queues.peek(b, device.client_id, Selection()).rows()
            assert row.payload == "1"
            assert (await queues.purge(b, device.client_id)).purged == 1


@patch.object(session_questions, "MOST_AWAY", 2)  # so that there are pages
@patch.object(status, "AWAY_SIZE", 3)
async def test_sessions_of_all_nodes_are_listed_and_changed_at_any(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        a, b = nodes["a"], nodes["b"]
        ids = [f"c{number}" for number in range(12)]
        for client_id in ids:
            async with Device(client_id) as device:
                await device.connect(a, ("t", 1), ("u", 1))
                await device.disconnect()
        await b.publish("t", b"1", 1)
        waiting = [service(node).status for node in (a, b)]
        await until(
            lambda: sum(each.queue_size for of in waiting for _, each in of.away()) == len(ids)
        )
        for node in (a, b):
            listed = await sessions.list_sessions(node, Selection(where='client_id ~ "^c"')).rows()
            assert sorted(each.client_id for each in listed) == sorted(ids)
            assert {each.node for each in listed} == {"a", "b"}
            assert {(each.queue_size, each.is_online, each.subscriptions) for each in listed} == {
                (1, False, 2)
            }
        assert all(len(each.away_from(0, "", 9)[0]) <= 2 for each in waiting), "bounded in bytes"
        here = await sessions.list_sessions(a, Selection(), local=True).rows()
        assert {each.node for each in here} == {"a"}
        away = named(nodes, "b", "c")
        await sessions.unsubscribe(a, away, "t")
        with pytest.raises(NotFoundError, match="no subscription to 't'; it has: u"):
            await sessions.unsubscribe(a, away, "t")
        done = await sessions.disconnect(a, away)
        assert (done.was_online, done.session_ended) == (False, False)
        async with Device(away) as device:
            await device.connect(b)
            await device.until(lambda: device.log == ["1"])
            shown = await sessions.show_session(a, away)
            assert [each.filter for each in shown.filters] == ["u"]
            await sessions.unsubscribe(a, away, "u")  # its connection is at b
            await until(lambda: not _subscriptions(b, away))
            assert (await sessions.disconnect(a, away)).was_online
            await device.until(lambda: not device.is_connected)


def _subscriptions(node: Broker, client_id: str) -> list[str]:
    figures = service(node).status.figures(client_id)
    return [] if figures is None else list(figures.subscriptions)


class Mute:
    """Stands for the outboxes of a node: nothing that it says arrives."""

    def send_quick(self, *_: object) -> bool:
        return True


async def test_the_list_of_sessions_says_which_nodes_did_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slotted(tmp_path, "abc") as nodes:
        a, b, c = (nodes[each] for each in "abc")
        ids = [named(nodes, each, "c") for each in "abc"]
        for client_id in ids:
            async with Device(client_id) as device:
                await device.connect(a)
        await until(lambda: not any(_is_online(nodes, each) for each in ids))
        listing = sessions.list_sessions(a, Selection())
        assert sorted(each.client_id for each in await listing.rows()) == sorted(ids)
        assert listing.missing == []
        # It is there, and answers no question.
        monkeypatch.setattr(clustering(b).sessions, "_outboxes", Mute())
        listing = sessions.list_sessions(a, Selection(sort="client_id"))
        assert {each.node for each in await listing.rows()} == {"a", "c"}
        assert listing.missing == ["b"]
        assert sessions.list_sessions(c, Selection(), local=True).missing == []


def _is_online(nodes: House, client_id: str) -> bool:
    figures = service(nodes[owner_of(nodes, client_id)]).status.figures(client_id)
    return figures is not None and figures.is_online


async def test_the_status_says_who_has_which_slots(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        for node in nodes.brokers.values():
            rows = cluster.list_members(node)
            assert sum(each.slots_owned or 0 for each in rows) == SLOTS
            assert sum(each.slots_followed or 0 for each in rows) == SLOTS
            assert [each.slots_without_follower for each in rows] == [0, 0]
            assert {each.slots_waiting for each in rows if each.is_self} == {0}
        families = {each.name: each for each in service(nodes["a"]).status.families()}
        assert families["cluster_slots_owned"].samples[0].value > 0
        await cluster.drain(nodes["a"], 10)
        assert [each.slots_owned for each in cluster.list_members(nodes["b"])] == [0, SLOTS]
        assert list(service(nodes["b"]).problems()) == []  # nobody is there who could follow
        await cluster.drain(nodes["a"], 10, undo=True)
        await until(lambda: bool(service(nodes["a"]).machines.slots.owners))


async def test_a_follower_that_is_behind_is_shown_by_name(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        a, b = service(nodes["a"]), service(nodes["b"])
        async with Device(named(nodes, "a", "s")) as device, Device("p", clean=True) as publisher:
            await device.connect(nodes["a"], ("t", 1))
            await publisher.connect(nodes["a"])
            with patch.object(b.disk, "commit", lambda *_: None):  # its disk writes nothing now
                publisher.publish("t", "1", 1)
                await device.until(lambda: device.log == ["1"])

                def lagging() -> float:
                    a.status.look()
                    found = {each.name: each for each in a.status.families()}
                    [sample] = found["cluster_slots_lagging"].samples
                    assert sample.labels == (("peer", "b"),)
                    return sample.value

                await until(lambda: lagging() == 1)
                for _ in range(3):
                    a.status.look()
                said = "the copies of 1 slot at node b are behind: acknowledgements wait for it"
                assert said in a.status.problems(2)
                rows = cluster.list_members(nodes["a"])
                assert {each.node: each.slots_behind for each in rows} == {"a": 0, "b": 1}
                assert publisher.unfinished
            await publisher.until(lambda: not publisher.unfinished)
            await until(lambda: lagging() == 0)
            assert said not in a.status.problems(0)
