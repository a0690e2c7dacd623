"""What goes to a neighbour without the store: acknowledged when the system has it, in order, lost with neither side."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.until import until
from tests.support.wire import publish_packet
from tests.vmq.clustering.delivery.test_outboxes import answers
from tests.vmq.clustering.nodes import hushed
from tests.vmq.clustering.sides import Side, payloads, rounds, sides
from vmq.clustering.delivery.passing import BATCH
from vmq.clustering.messages.publishes import QOS, RemotePublish
from vmq_cluster.errors import UnwrittenError


async def test_what_passes_is_acknowledged_at_once_and_leaves_no_trace(tmp_path: Path) -> None:
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        client = a.client()
        await until(lambda: client.received)
        with a.suspended():
            writes = a.store.writes
            for payload in payloads(1, 3):
                client.publish("t", payload, qos=1)
            assert answers(client) == [1, 2, 3]
            await until(lambda: b.got == payloads(1, 3))
            await until(lambda: a.outboxes.waiting() == (0, 0))
            assert a.store.writes == writes


async def test_what_passes_in_bunches_is_one_payload_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first turn shows that it does. A publisher is answered when its message is on its way."""
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        clients = [a.client(name) for name in "pqr"]
        await until(lambda: all(each.received for each in clients))
        sent: list[bytes] = []
        counts: list[int] = []
        clock = [a.running.parts.core.clock()]
        a.running.parts.core.clock = lambda: clock[0]
        send = a.node.link.send_numbered

        def counted(*each: Any) -> bool | None:
            counts[-1] += 1
            return send(*each)

        monkeypatch.setattr(a.node.link, "send_numbered", counted)
        for step in (0.0, 0.0, 150e-6):
            clock[0] += 1
            counts.append(0)
            for client in clients:
                clock[0] += step
                sent.append(b"%d" % len(sent))
                client.publish("t", sent[-1], qos=1)
            assert (len(answers(clients[-1])) == len(counts)) is (counts[-1] > 0)
            await until(lambda: all(len(answers(each)) == len(counts) for each in clients))
        assert counts == [3, 1, 1]
        await until(lambda: b.got == sent)


async def test_what_passes_keeps_its_order_with_what_does_not(tmp_path: Path) -> None:
    """In one pass, which has more than a batch holds."""
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        client, sent, raw = a.client(), [], b""
        for number in range(1, 600):
            size = BATCH + 1 if number % 97 == 0 else 200
            sent.append(b"%0*d" % (size, number))
            qos = 2 if number % 89 == 0 else 1
            raw += publish_packet("t", sent[-1], qos=qos, packet_id=number)
        client.send(raw)
        for each in (b"one more", b"and one"):
            client.publish("t", each)
            client.publish("t", each, qos=1)
        await until(lambda: len([each for each in b.got if len(each) >= 200]) == len(sent))
        assert [each for each in b.got if len(each) >= 200] == sent
        await until(lambda: len(answers(client)) == len(sent) + 2)
        await until(lambda: a.outboxes.waiting() == (0, 0))


async def test_what_a_peer_that_goes_down_has_not_confirmed_is_kept_for_it(tmp_path: Path) -> None:
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        client = a.client()
        with hushed(b.running):
            for payload in payloads(1, 3):
                client.publish("t", payload, qos=1)
            await until(lambda: len(b.records(b"rgot/")) == 3)
            assert a.spooled() == 0
            await b.kill()
        await until(lambda: a.spooled() == 3)
        client.publish("t", b"4", qos=1)
        await until(lambda: answers(client) == [1, 2, 3, 4])
        await a.kill()
        await a.start()
        await b.start()
        await until(lambda: a.outboxes.waiting() == (0, 0))
        assert b.got == payloads(1, 4)


@pytest.mark.parametrize(("goes", "first"), [(None, "a"), (False, "b")])
async def test_what_the_system_does_not_take_whole_is_safe_when_a_store_has_it(
    tmp_path: Path, goes: bool | None, first: str
) -> None:
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        client, link = a.client(), a.node.link
        send = link.send_numbered

        def half(*each: Any) -> bool | None:
            return None if goes is None else bool(send(*each)) and goes

        with patch.object(link, "send_numbered", half), a.suspended(), b.suspended():
            client.publish("t", b"1", qos=1)
            await until(lambda: b.got == [b"1"])
            await rounds(a, b)
            assert answers(client) == []
        {"a": a, "b": b}[first].commit()
        await until(lambda: answers(client) == [1])


async def test_what_a_node_that_cannot_write_does_not_send_goes_when_it_can(tmp_path: Path) -> None:
    async with sides(tmp_path, near=True) as (a, b):
        await b.wants(a)
        assert a.outboxes.forward("b", RemotePublish(b"t", b"x", 1), 1, a.client().connection)
        node = a.node
        node.failure = UnwrittenError("full")
        a.outboxes.flush()
        node.failure = None
        await until(lambda: b.got == [b"x"])


@pytest.mark.parametrize(
    "message",
    [
        RemotePublish(b"t", b"x", 2),
        RemotePublish(b"t", b"x", 1, group="$share/g/t"),
        RemotePublish(b"t", bytes(BATCH + 1), 1),
    ],
    ids=["QoS 2", "share group", "long"],
)
async def test_what_does_not_pass_is_in_the_store_first(
    tmp_path: Path, message: RemotePublish
) -> None:
    async with sides(tmp_path, near=True) as (a, b):
        with a.suspended():
            assert forward(a, message)
            assert forward(a, RemotePublish(b"t", b"behind it", 1))
            await rounds(b, a)
            assert b.got == payloads(0, 4)
        a.commit()
        await until(lambda: b.got[5:] == [message.payload, b"behind it"])


def forward(a: Side, message: RemotePublish) -> bool:
    """As what a client published."""
    taken = a.outboxes.forward("b", message, message.flags & QOS, a.client().connection)
    a.outboxes.flush()
    return taken
