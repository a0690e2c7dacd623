"""The table of `docs/cluster.md`, row by row: each promise as a script of what happens, and of what holds then."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.simulator.world import World
from tests.support.wire import Will

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

#: The scripts, by the beginning of the row that they show.
ROWS: dict[str, list[Callable[[], None]]] = {}

#: Rows about what the simulator has not: links that tell that a process has ended, and the files of streams and stores.
ELSEWHERE = (
    "A node that has left, and starts again",
    "A node that is to join",
    "A second node with the name of one that is up",
    "The answers of a node take long",
    "`vmq cluster drain`",
    "A durable session of which its owner's store has a part that is damaged",
    "A handshake or an attempt to connect is lost on the way",
    "A node without the key",
    "Nodes are of several versions",
    "Streams: acknowledged messages",
    "Streams: batches that a program publishes",
    "Streams: order of one key",
    "Streams with `replicas`",
    "The process of a node ends",
    "Streams: offsets",
    "Streams: a partition that is damaged",
)


def shows(row: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def put(script: Callable[[], None]) -> Callable[[], None]:
        ROWS.setdefault(row, []).append(script)
        return script

    return put


def rows() -> Iterator[tuple[str, str]]:
    """Each row of the table, and the tests that it names."""
    _, _, rest = PAGE.read_text().partition("## What holds")
    for line in rest.partition("\n## ")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| What |", "| --- ")):
            yield line.removeprefix("| "), line.rpartition(" | ")[2]


def test_every_row_of_the_table_has_its_script() -> None:
    known = (*ROWS, *ELSEWHERE)
    found = [[each for each in known if row.startswith(each)] for row, _ in rows()]
    assert [len(each) for each in found] == [1] * len(found), found
    assert sorted(each[0] for each in found) == sorted(known)


def test_every_row_names_tests_that_there_are() -> None:
    root = PAGE.parents[1]
    for row, tests in rows():
        names = re.findall(r"`(tests/[^`]+)`", tests)
        assert names or tests.startswith("the same"), row
        for path, _, name in (each.partition("::") for each in names):
            text = (root / path).read_text()
            assert not name or re.search(rf"^(async )?def {name}\(", text, re.M), name


@shows("Clients connect, publish, subscribe")
def test_each_side_of_a_split_serves_its_clients() -> None:
    with World(1, "a", "b", "c") as world:
        world.split("a", "bc")
        for side in "ab":
            client = world.client(f"s-{side}", side).subscribe((side, 1))
            world.publish(side, f"on {side}", topic=side, qos=1)
            world.until(lambda client=client: client.texts)  # type: ignore[misc]  # mypy infers no default


@shows("Clients connect, publish, subscribe")
def test_what_is_forbidden_in_a_split_is_refused_there() -> None:
    with World(1, "a", "b", allow_register_during_netsplit=False) as world:
        client = world.client("first", "a")
        world.split("a", "b")
        other = world.device("second")
        other.begin("a")
        world.until(lambda: other.refusal == 3)
        world.heal()
        other.connect("a")
        assert client.is_connected


@shows("QoS 1 and 2, acknowledged |")
def test_what_is_published_while_a_node_is_down_waits_for_it() -> None:
    with World(2, "a", "b", adopt_after=600.0) as world:
        sub = world.subscriber("s", "b")
        world.kill("b")
        world.publish("a", "1", "2", "3")
        world.kill("a")
        world.start("a", "b")
        sub.connect("b")
        world.until(lambda: sub.texts == ["1", "2", "3"])


@shows("QoS 1 and 2, acknowledged |")
def test_what_was_acknowledged_survives_the_death_of_all_nodes_at_once() -> None:
    with World(3, "a", "b", "c") as world:
        world.subscriber("s", "b").leave()
        world.publish("a", "1", "2")
        world.kill("a", "b", "c")
        world.start("a", "b", "c")
        world.finish()
        world.oracle.check()


@shows("QoS 2 comes once")
def test_qos_2_comes_once_over_breaks_of_the_link_and_restarts() -> None:
    with World(4, "a", "b", replicas=1) as world:
        sub = world.subscriber("s", "b")
        for number in range(6):
            for each in range(3):
                world.device("p").publish("t", f"{number} {each}", 2)
            world.device("p").begin("a")
            world.run(0.01 * number)
            world.network.split("a", "b") if number % 2 else world.kill("b")
            world.run(2.5)
            world.network.heal()
            world.start("b")
            sub.connect("b")
        world.finish()
        world.oracle.check(order=True)


@shows("Order: messages of one publisher")
def test_what_waited_comes_before_what_is_published_later() -> None:
    with World(5, "a", "b") as world:
        sub = world.subscriber("s", "b")
        world.split("a", "b")
        world.publish("a", "1", "2", "3")
        world.network.heal()
        world.publish("a", "4", "5")
        world.until(lambda: sub.texts == ["1", "2", "3", "4", "5"])


@shows("QoS 0")
def test_qos_0_reaches_nodes_that_are_up_and_is_not_sent_again() -> None:
    with World(6, "a", "b") as world:
        sub = world.subscriber("s", "b")
        world.publish("a", "up", qos=0)
        world.until(lambda: sub.texts == ["up"])
        world.split("a", "b")
        world.publish("a", "lost", qos=0)
        world.heal()
        world.publish("a", "up again", qos=1)
        world.until(lambda: sub.texts == ["up", "up again"])


@shows("What exceeds `cluster.buffer_bytes`")
def test_what_exceeds_the_buffer_is_dropped_and_counted() -> None:
    with World(7, "a", "b", "c", buffer_bytes=65_536, replicas=1) as world:
        sub = world.subscriber("s", "b")
        world.split("b", "ac")
        texts = [f"{number:04}" + "x" * 4000 for number in range(40)]
        world.publish("a", *texts, qos=1)
        dropped = world["a"].clustering.outboxes.dropped.messages
        assert 20 < dropped < 30
        world.settle()
        world.until(lambda: sub.texts == texts[: 40 - dropped])


@shows('`cluster.ack_after = "remote"`')
def test_an_acknowledgement_waits_for_the_other_nodes_disk_and_not_for_one_that_is_down() -> None:
    with World(8, "a", "b", ack_after="remote", replicas=1) as world:
        world.client("s", "b", clean=True).subscribe(("t", 1))
        publisher = world.client("p", "a")
        world.run(1)
        world.pause("b")
        publisher.publish("t", "1")
        world.run(1)
        assert publisher.unfinished
        world.until(lambda: not world["a"].node.up)
        publisher.finish()


@shows("Subscriptions |")
def test_what_is_subscribed_on_one_side_counts_everywhere_when_the_split_is_over() -> None:
    with World(9, "a", "b") as world:
        world.split("a", "b")
        sub = world.client("s", "b").subscribe(("t", 1))
        world.heal()
        world.until(lambda: world.is_known("s", "b"))
        world.publish("a", "1")
        world.kill("a", "b")
        world.start("a", "b")
        world.publish("a", "2")
        sub.connect("b")
        world.until(lambda: sub.texts == ["1", "2"])


@shows('`cluster.suback_after = "cluster"`')
def test_with_the_suback_every_node_routes_to_the_subscription() -> None:
    with World(10, "a", "b", "c", suback_after="cluster") as world:
        for number in range(20):
            sub = world.client(f"s{number}", "b", clean=True).subscribe((f"t/{number}", 0))
            world.publish("a", f"{number}", topic=f"t/{number}", qos=0)
            world.until(lambda sub=sub: sub.texts)  # type: ignore[misc]  # mypy infers no default


@shows("A node starts")
def test_a_node_that_starts_knows_what_it_missed_before_it_has_clients() -> None:
    with World(11, "a", "b", "c") as world:
        world.stop("a")
        sub = world.subscriber("s", "b")
        world.start("a")
        world.publish("a", "1")
        world.until(lambda: sub.texts == ["1"])


@shows("A client connects to another node")
def test_a_session_follows_its_client_with_queue_and_what_is_in_flight() -> None:
    with World(12, "a", "b", "c") as world:
        sub = world.subscriber("s", "a").hush()
        world.publish("b", "1", "2")
        world.until(lambda: sub.texts == ["1", "2"])
        sub.drop()
        world.publish("c", "3")
        for name in "bca":
            assert sub.connect(name).had_session
        sub.answer()
        world.finish()
        assert sub.texts == ["1", "2", "3"]
        world.until(lambda: world.owners("s") == [world.owner("s")])


@shows("One client id on both sides of a split")
def test_of_two_sessions_of_one_client_the_newer_stays_and_gets_what_waits_in_the_other() -> None:
    with World(13, "a", "b", "c", adopt_after=600.0) as world:
        sub = world.subscriber("s", "a")
        world.subscriber("other", "b")
        world.split("a", "bc")
        world.publish("a", "1", "2")
        sub.connect("b")
        world.publish("b", "3")
        world.publish("c", "4")
        world.finish()
        world.oracle.check()
        assert world.owners("s") == ["b"]


@shows("A client that stays at its node in a split longer than")
def test_who_stays_at_its_node_while_others_adopt_its_session_gets_nothing_twice() -> None:
    with World(14, "a", "b", "c", adopt_after=3.0) as world:
        sub = world.subscriber("s", "a")
        sub.drop()
        world.publish("b", "1", "2")
        world.until(world.is_quiet)
        world.split("a", "bc")
        sub.connect("a")
        world.until(lambda: sub.texts == ["1", "2"])
        world.until(lambda: "s" in [*world["b"].sessions(), *world["c"].sessions()])
        world.publish("c", "3")
        world.heal()
        sub.connect("b")
        world.finish()
        assert sub.texts == ["1", "2", "3"]


@shows("What is published for durable sessions of other nodes")
def test_what_waits_for_a_node_that_is_down_survives_its_publishers_disk() -> None:
    with World(15, "a", "b", "c", adopt_after=5.0) as world:
        sub = world.subscriber("s", "b")
        world.kill("b")
        world.until(world.has_noticed)
        world.publish("a", "1", "2", "3")
        world.lose("a")
        world.start("a", "b")
        world.settle()
        sub.connect("b")
        world.until(lambda: sub.texts == ["1", "2", "3"])


@shows("What is published for durable sessions of other nodes")
def test_a_keeper_gives_what_a_node_left_that_is_back_without_its_disk_before_it_is_missed() -> (
    None
):
    with World(16, "a", "b", "c", adopt_after=5.0) as world:
        world.subscriber("s", "b")
        world.kill("b")
        world.until(world.has_noticed)
        world.publish("a", "1", "2", "3")
        world.lose("a")
        world.start("a")
        assert "a" in world["c"].node.up
        world.finish()
        world.oracle.check()


@shows("Copies of durable sessions move to a node that joins")
def test_copies_move_to_a_node_that_joins() -> None:
    with World(17, "a", "b") as world:
        for number in range(20):
            world.subscriber(f"s{number}", "a").drop()
        world.publish("b", "1")
        world.add("c")
        world.until(lambda: world["c"].is_open)
        world.until(lambda: len(world["c"].clustering.replication.copies) > 4, 300)
        world.until(world.is_quiet)
        world.lose("a")
        world.finish()
        world.oracle.check()


@shows("Durable sessions survive the loss of their node")
def test_a_session_survives_the_loss_of_its_node_with_its_disk() -> None:
    with World(18, "a", "b", "c") as world:
        sub = world.subscriber("s", "a")
        sub.drop()
        world.publish("b", "1", "2")
        world.lose("a")
        assert sub.connect("c").had_session
        world.until(lambda: sub.texts == ["1", "2"])


@shows("Durable sessions survive the loss of their node")
def test_a_node_that_is_back_empty_has_its_sessions_again() -> None:
    with World(19, "a", "b", "c", adopt_after=600.0) as world:
        sub = world.subscriber("s", "a")
        sub.drop()
        world.publish("b", "1", "2")
        world.lose("a")
        world.until(world.has_noticed)
        world.publish("b", "3")
        world.start("a")
        world.until(lambda: list(world["a"].sessions()) == ["s"])
        assert sub.connect("a").had_session
        world.until(lambda: sorted(sub.texts) == ["1", "2", "3"])


@shows("Durable sessions survive the loss of their node")
def test_a_node_that_is_back_empty_asks_also_who_is_late_to_answer_for_its_copies() -> None:
    with World(132, "a", "b", "c", "d") as world:
        world.subscriber("s", "a").leave()
        world.publish("b", *(f"{number}" for number in range(5)))
        world.settle()
        replicas = world["a"].clustering.replication.replicas
        assert replicas is not None
        session = world["a"].running.registry().subscribers["s"].queue.session
        [holder] = replicas.holders(session)
        world.lose("a")
        world.until(world.has_noticed)
        world.network.lags["a", holder] = world.network.lags[holder, "a"] = 0.4
        world.start("a")
        world.finish()
        world.oracle.check()


@shows("Durable sessions survive the loss of their node")
def test_who_comes_to_a_node_that_has_just_started_gets_the_copy_of_one_that_it_reaches_last() -> (
    None
):
    with World(132, "a", "b", "c", "d", adopt_after=600.0) as world:
        sub = world.subscriber("s", "a")
        sub.drop()
        world.publish("b", *(f"{number}" for number in range(5)))
        world.settle()
        replicas = world["a"].clustering.replication.replicas
        assert replicas is not None
        session = world["a"].running.registry().subscribers["s"].queue.session
        [holder] = replicas.holders(session)
        other = next(each for each in "bcd" if each != holder)
        world.kill("a", other)
        world.until(world.has_noticed)
        world.network.lags[other, holder] = world.network.lags[holder, other] = 0.4
        world.start(other)
        assert holder not in world[other].node.up
        sub.connect(other)
        world.until(lambda: sorted(sub.texts) == [f"{number}" for number in range(5)])


@shows("QoS 1 and 2, acknowledged, for a durable session whose node is dead")
def test_what_waits_for_a_node_that_is_removed_goes_where_its_sessions_are() -> None:
    with World(20, "a", "b", "c", adopt_after=600.0) as world:
        sub = world.subscriber("s", "b")
        world.kill("b")
        world.until(world.has_noticed)
        world.publish("a", "1", "2")
        world.remove("b")
        sub.connect("c")
        world.until(lambda: sorted(sub.texts) == ["1", "2"])


@shows("`vmq cluster leave`")
def test_a_node_that_leaves_hands_its_sessions_over() -> None:
    with World(21, "a", "b", "c") as world:
        sub = world.subscriber("s", "a")
        sub.drop()
        world.publish("b", "1", "2")
        assert world.leave("a")
        world.until(lambda: world.owner("s") in ("b", "c"))
        assert sub.connect("c").had_session
        world.until(lambda: sub.texts == ["1", "2"])
        assert set(world["b"].node.members) == {"b", "c"}


@shows("Nodes restart one after the other")
def test_a_rolling_restart_loses_nothing() -> None:
    with World(22, "a", "b", "c") as world:
        sub = world.subscriber("s", "a")
        for name, other in ("ab", "bc", "ca"):
            world.publish(name, f"before {name}", qos=1)
            world.stop(name)
            sub.connect(other)
            world.publish(other, f"without {name}", qos=1)
            world.start(name)
        world.finish()
        world.oracle.check()


@shows("A node is held up")
def test_a_node_that_is_held_up_takes_nobody_for_down_when_it_goes_on() -> None:
    with World(23, "a", "b", "c") as world:
        sub = world.subscriber("s", "b")
        world.pause("b")
        world.until(lambda: world["a"].node.up == ["c"])
        world.publish("a", "1")
        world.resume("b")
        world.run(0.05)
        assert world["b"].node.up == ["a", "c"]
        world.until(lambda: sub.texts == ["1"])


@shows("Retained messages")
def test_of_what_both_sides_retain_the_last_stays_everywhere() -> None:
    with World(24, "a", "b") as world:
        one, other = world.client("one", "a"), world.client("other", "b")
        one.publish("gone", "x", 1, retain=True).finish()
        world.until(world.is_quiet)
        world.split("a", "b")
        one.publish("t", "older", 1, retain=True).finish()
        world.run(1)
        other.publish("t", "newer", 1, retain=True).publish("gone", "", 1, retain=True).finish()
        world.heal()
        world.until(world.is_quiet)
        for name in "ab":
            found = world.client(f"reads {name}", name).subscribe(("#", 0))
            world.run(1)
            assert found.texts == ["newer"]


@shows("Shared subscriptions")
def test_one_member_of_a_share_group_gets_each_message_never_one_that_is_down() -> None:
    with World(25, "a", "b", "c") as world:
        members = [world.client(f"m-{name}", name, clean=True) for name in "bc"]
        for each in members:
            each.subscribe(("$share/g/t", 1))
        world.run(2)
        world.publish("a", "1", "2", "3", qos=1)
        world.kill("b")
        world.until(world.has_noticed)
        world.publish("a", "4", "5", "6", qos=1)
        world.until(lambda: len(members[0].log + members[1].log) == 6)
        assert {"4", "5", "6"} <= set(members[1].texts)


@shows("Wills")
def test_a_will_reaches_subscribers_of_other_nodes() -> None:
    with World(26, "a", "b") as world:
        sub = world.subscriber("s", "b")
        world.oracle.published("mortal", "t", "it is gone", 1)
        mortal = world.device("mortal", clean=True, will=Will("t", b"it is gone", 1))
        mortal.connect("a").drop()
        world.until(lambda: sub.texts == ["it is gone"])


@shows("A node whose disk was wiped")
def test_a_node_without_its_disk_brings_nothing_back_that_was_deleted() -> None:
    with World(27, "a", "b", "c") as world:
        client = world.client("p", "a")
        client.publish("t", "old", 1, retain=True).finish()
        world.until(world.is_quiet)
        world.lose("b")
        world.until(world.has_noticed)
        client.publish("t", "", 1, retain=True).finish()
        world.start("b")
        world.until(world.is_quiet)
        found = world.client("reads", "b").subscribe(("#", 0))
        world.run(1)
        assert found.texts == []


@shows("A node that was removed")
def test_who_was_removed_stays_out_after_a_restart() -> None:
    with World(28, "a", "b", "c") as world:
        world.kill("c")
        world.until(world.has_noticed)
        world.remove("c")
        world.start("c")
        world.until(lambda: world["c"].clustering.joining.excluded_by)
        world.stop("c")
        world.start("c")
        world.run(10)
        assert world["a"].node.up == ["b"]
        assert list(world["c"].node.members) == ["c"]
