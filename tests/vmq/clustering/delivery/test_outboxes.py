"""Messages between real brokers: once, in order, whoever dies in between."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.peer import Peer
from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PUBACK, PUBREC, split_packets
from tests.vmq.clustering.nodes import clustering, hushed, together
from tests.vmq.clustering.sides import payloads, rounds, sides


async def test_a_message_does_not_leave_before_it_is_safe_here(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        with a.suspended():
            a.send(b"lane")
            await rounds(b, a)
            assert b"lane" not in b.got
        a.running.parts.committer.commit()
        await until(lambda: a.done == [True])


async def test_what_is_sent_as_a_commit_begins_is_in_it_whole(tmp_path: Path) -> None:
    """As marks are, when the directory writes what changed."""
    async with sides(tmp_path) as (a, b):
        await b.stop()
        committer = present(a.running.parts.committer)
        said: list[bytes] = []

        def say() -> None:
            if not said:
                said.append(b"1")
                a.send(b"1")

        behind = committer.before.index(clustering(a.running).directory.flush) + 1
        committer.before.insert(behind, say)
        a.commit()
        assert said == [b"1"]
        assert a.spooled() == 1
        committer.before.remove(say)


async def test_a_sender_that_starts_again_sends_nothing_that_is_handled_twice(
    tmp_path: Path,
) -> None:
    """It died before it heard that the peer had everything."""
    async with sides(tmp_path) as (a, b):
        await until(lambda: not a.outboxes._outboxes["b"].messages)  # of wills, as they met
        with hushed(b.running):
            for payload in payloads(1, 3):
                a.send(payload)
            await until(lambda: len(b.records(b"rgot/")) == 3)
            assert a.spooled() == 3
            await a.kill()
        await a.start()
        await together(a.running, b.running)
        a.send(b"4")
        await until(lambda: a.done == [True])
        assert a.outboxes.waiting()[0] == 0
        assert b.got == payloads(1, 4)


# --- what publishers wait for


def answers(client: Peer) -> list[int]:
    """The packet ids of what was acknowledged."""
    packets = split_packets(bytearray(client.received))
    return [packet.packet_id for packet in packets if packet.type in (PUBACK, PUBREC)]


async def test_by_default_a_publisher_waits_for_the_own_store_alone(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        await b.wants(a)
        client = a.client()
        with b.suspended():
            client.publish("t", qos=1)
            await until(lambda: answers(client) == [1])
            assert a.spooled() == 1
        b.commit()


async def test_a_publisher_may_wait_for_the_stores_of_other_nodes(tmp_path: Path) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client, other = a.client(), a.client("other")
        with b.suspended():
            for number in range(3):
                client.publish("t", b"%d" % number, qos=1)
            client.publish("t", b"3", qos=2)
            await until(lambda: len(b.got) == 4)
            other.publish("elsewhere", qos=1)
            await until(lambda: answers(other) == [1])
            await rounds(a, b)
            assert answers(client) == []
        b.commit()
        await until(lambda: answers(client) == [1, 2, 3, 4])


async def test_a_node_that_goes_down_is_waited_for_no_more(tmp_path: Path) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client()
        with b.suspended():
            client.publish("t", b"1", qos=1)
            await until(lambda: b.got == [b"1"])
            assert answers(client) == []
            await b.kill()
        await until(lambda: answers(client) == [1])
        assert a.spooled() == 1
        client.publish("t", b"2", qos=1)
        await until(lambda: answers(client) == [1, 2])
        await b.start()
        await until(lambda: b.got == [b"1", b"1", b"2"])


async def test_a_node_that_failed_waits_for_nobody(tmp_path: Path) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client()
        with b.suspended():
            client.publish("t", b"1", qos=1)
            await until(lambda: b.got == [b"1"])
            node = a.node
            machine, node._machine = node._machine, None
            client.publish("t", b"2", qos=1)
            await until(lambda: answers(client) == [1, 2])
            assert a.spooled() == 2
            node._machine = machine
        b.commit()


async def test_a_message_sent_again_is_answered_when_the_first_would_be(tmp_path: Path) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client(clean=False)
        with b.suspended():
            client.publish("t", b"1", qos=2)
            await until(lambda: b.got == [b"1"])
            client.leave()
            again = a.client(clean=False)
            again.publish("t", b"1", qos=2, dup=True)
            await rounds(a, b)
            assert answers(again) == []
        b.commit()
        await until(lambda: answers(again) == [1])
        assert b.got[-1] == b"1"
        assert b.got.count(b"1") == 1


# --- bounds


async def test_publishers_pause_for_a_node_that_is_up_where_the_options_say_so(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path, overflow="pause_publisher", buffer_bytes=65_536) as (a, b):
        await b.wants(a)
        client = a.client()
        load = b"x" * 10_000
        with b.suspended():
            for _ in range(4):
                client.publish("t", load, qos=1)
                if client.connection.pauses:
                    break
            assert client.connection.pauses == 1
            assert a.outboxes.dropped.messages == 0
        b.commit()
        await until(lambda: client.connection.pauses == 0)
        await until(lambda: a.outboxes.waiting_for(b.name) == (0, 0))
        # For one that is down nobody waits.
        await b.stop()
        await until(lambda: not a.node.up)
        for _ in range(8):
            client.publish("t", load, qos=1)
        assert client.connection.pauses == 0
        assert a.outboxes.dropped.messages == 2


@patch("vmq.clustering.delivery.outbox.PARCEL", 2_000)
@patch("vmq.clustering.delivery.outbox.WINDOW", 20_000)
async def test_a_spool_larger_than_memory_may_hold_goes_out_in_order_after_a_restart(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path) as (a, b):
        await b.stop()
        sent = [b"%d" % number + b"x" * 500 for number in range(300)]
        for payload in sent[:200]:
            assert a.send(payload)
        await until(lambda: a.spooled() == 200)
        await a.kill()
        await a.start()
        assert a.outboxes.waiting()[0] == 200
        for payload in sent[200:]:
            assert a.send(payload)
        await b.start()
        await until(lambda: len(b.got) == 300)
        assert b.got == sent
        await until(lambda: a.records(b"o") == [])


async def test_a_backlog_that_cannot_be_read_is_read_again_once_however_often_it_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    again: list[Callable[[], None]] = []
    async with sides(tmp_path) as (a, b):
        await b.stop()
        for payload in payloads(1, 3):
            a.send(payload)
        await until(lambda: a.spooled() == 3)
        outbox = a.outboxes.outbox("b")
        a.node.forget("b")
        outbox.rewind()
        outbox.is_open = True
        with monkeypatch.context() as patched:
            patched.setattr(a.store, "db", None)
            patched.setattr(a.running.parts.core, "call_later", lambda _, act: again.append(act))
            for _ in range(3):
                a.outboxes.dispatch.hand_over(outbox)
        assert len(again) == caplog.text.count("cannot read what waits for b") == 1
        again[0]()
        await b.start()
        await until(lambda: b.got == payloads(1, 3))


@patch("vmq.clustering.delivery.outbox.PARCEL", 2_000)
@patch("vmq.clustering.delivery.outbox.WINDOW", 20_000)
async def test_with_a_store_that_acknowledges_early_everything_still_arrives(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path, durability="memory") as (a, b):
        await until(lambda: not a.outboxes._outboxes["b"].messages)  # of wills, as they met
        with a.suspended():
            sent = [b"%d" % number + b"x" * 500 for number in range(300)]
            for payload in sent:
                assert a.send(payload)
            a.running.parts.core.outbox.flush()
            await until(lambda: len(b.got) > 20)
            assert a.spooled() == 0
        a.commit()
        await until(lambda: len(a.done) == 300)
        assert b.got == sent
        await until(lambda: a.records(b"o") == [])
