"""Many job ids in one PUBLISH: others have their turns, and what holds when holds as with a few."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.support.wire import publish_packet
from tests.vmq.jobs.serving import TCP, config_of, machine
from tests.vmq.sockets import Peer, session_of
from vmq.broker import Broker
from vmq.jobs.mqtt.settling import JobSettling


def settling_of(broker: Broker) -> JobSettling:
    return broker.jobs.open().mqtt.publishing.settling


def added(broker: Broker, count: int) -> bytes:
    """So many jobs; their ids, one a line."""
    jobs = machine(broker)
    queue, now = jobs.queue(b"mail", 1.0), broker.jobs.open().core.clock()
    return b"\n".join([jobs.add(queue, b"x", now).id for _ in range(count)])


def watched(
    patch: pytest.MonkeyPatch,
    broker: Broker,
    seen: list[Any],
    then: Callable[[Any], None] | None = None,
) -> None:
    """Notes each slice, each turn of the event loop behind one, and each acknowledgement."""
    settling = settling_of(broker)
    settle_all, acknowledge = settling.settle_all, settling.acknowledge

    def slice_of(client: Any, asked: Any, ids: list[bytes]) -> None:
        seen.append(len(ids))
        asyncio.get_running_loop().call_soon(seen.append, "others")
        settle_all(client, asked, ids)
        if then is not None:
            then(client)

    def last(client: Any, asked: Any) -> None:
        seen.append("acknowledged")
        acknowledge(client, asked)

    patch.setattr(settling, "settle_all", slice_of)
    patch.setattr(settling, "acknowledge", last)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_others_have_their_turns_and_the_answer_comes_behind_the_last(
    broker: Broker, peer: Peer, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    await peer.connect("c")
    ids = added(broker, 1200) + b"\nnonsense"
    seen: list[Any] = []
    watched(monkeypatch, broker, seen)
    packet_id = 7 if qos else None
    peer.send(publish_packet("$jobs/mail/ack", ids, qos=qos, packet_id=packet_id), b"\xc0\x00")
    told = [(await peer.packet()).raw]
    assert machine(broker).counts.acknowledged == 1200  # what it sent next waited, too
    if qos:
        told.append((await peer.packet()).raw)
        assert bytes([0x30 + 16 * qos, 2, 0, 7]) in told
    assert b"\xd0\x00" in told
    assert not machine(broker).jobs
    assert seen[:5] == [500, "others", 500, "others", 201]
    assert seen.index("acknowledged") > 4
    if qos == 2:
        peer.send(publish_packet("$jobs/mail/ack", ids, qos=2, packet_id=7, dup=True))
        await peer.expect(b"\x50\x02\x00\x07")
        assert seen.count(500) == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_a_client_said_that_went_away_holds(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    ids = added(broker, 1200)
    seen: list[Any] = []
    watched(monkeypatch, broker, seen, lambda client: client.output.close("a test"))
    async with session_of(broker, listener=TCP, clean=False) as peer:
        packet_id = 7 if qos else None
        peer.send(publish_packet("$jobs/mail/ack", ids, qos=qos, packet_id=packet_id))
        await until(lambda: not machine(broker).jobs)
    assert "acknowledged" not in seen
    async with session_of(broker, listener=TCP, clean=False) as peer:
        if qos:
            peer.send(publish_packet("$jobs/mail/ack", b"", qos=qos, packet_id=7, dup=True))
            await peer.expect(bytes([0x30 + 16 * qos, 2, 0, 7]))


async def test_a_broker_that_stops_settles_what_is_left(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ids = added(broker, 1200)
        settling = settling_of(broker)
        async with session_of(broker, listener=TCP) as peer:
            commit = broker.jobs.open().commit
            call_soon = commit.call_soon
            turns: list[Callable[[], None]] = []
            commit.call_soon = turns.append
            peer.send(publish_packet("$jobs/mail/ack", ids, qos=1, packet_id=7))
            await until(lambda: settling.running)
            commit.call_soon = call_soon
            commit.is_ending = False
    async with Broker(config_of(tmp_path)) as broker:
        assert not machine(broker).jobs
    for turn in turns:
        turn()  # too late, and of no effect
