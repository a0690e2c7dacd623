"""Delayed messages: when they come, what they are then, rights, restarts."""

from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Plugin, Refuse, hook
from vmq_hooks.types import Message, SubscriberId

from tests.support.until import until
from tests.support.wire import Will, puback_packet, publish_packet, subscribe_packet
from tests.vmq.jobs.mqtt.test_publishing import bodies
from tests.vmq.jobs.serving import TCP, config_of, machine
from tests.vmq.sockets import Peer, session_of
from vmq.admin.jobs.queues import peek
from vmq.admin.listing import Selection
from vmq.broker import Broker
from vmq.config.jobs import JobOptions


async def subscribed(peer: Peer, topic_filter: str, qos: int) -> None:
    await peer.ask(subscribe_packet(1, (topic_filter, qos)), b"\x90\x03\x00\x01" + bytes([qos]))


def due_now(broker: Broker) -> None:
    """Time goes on: what is delayed is due."""
    found = machine(broker)
    for job in found.jobs.values():
        if job.is_delayed:
            found.timers.set(job, 0.0, broker.jobs.open().core.clock())


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_comes_when_it_is_due_as_it_was_published(
    broker: Broker, device: Peer, qos: int
) -> None:
    await subscribed(device, "a/#", 2)
    packet_id = 7 if qos else None
    device.send(
        publish_packet("$delayed/1000/a/b", b"x", qos=qos, packet_id=packet_id, retain=True)
    )
    if qos:
        assert (await device.packet()).packet_id == 7
    await until(lambda: machine(broker).jobs)
    due_now(broker)
    found = await device.packet()
    assert (found.topic, found.qos, found.body[-1:]) == ("a/b", qos, b"x")
    await until(lambda: not machine(broker).jobs)
    assert broker.registry().retained.get("a/b") is not None


async def test_a_delayed_message_outlives_the_broker(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with Broker(config) as broker, session_of(broker, listener=TCP, clean=False) as peer:
        await subscribed(peer, "a", 1)
        peer.send(publish_packet("$delayed/1000/a", b"x", qos=2, packet_id=7))
        await peer.expect(b"\x50\x02\x00\x07")
    async with Broker(config) as broker, session_of(broker, listener=TCP, clean=False) as peer:
        # Sent again, it is the same message.
        peer.send(publish_packet("$delayed/1000/a", b"x", qos=2, packet_id=7, dup=True))
        await peer.expect(b"\x50\x02\x00\x07")
        assert len(machine(broker).jobs) == 1
        due_now(broker)
        found = await peer.packet()
        assert (found.topic, found.qos) == ("a", 1)
        peer.send(puback_packet(found.packet_id))
        await until(lambda: not machine(broker).jobs)


async def test_a_delayed_job_and_a_delayed_will(broker: Broker) -> None:
    async with session_of(broker, listener=TCP, will=Will("$delayed/2000/a", b"gone")) as peer:
        peer.send(publish_packet("$delayed/1000/$jobs/mail;priority=4", b"x", qos=1, packet_id=7))
        await peer.expect(b"\x40\x02\x00\x07")
    await until(lambda: len(machine(broker).jobs) == 2)
    async with session_of(broker, listener=TCP) as peer:
        await subscribed(peer, "a", 0)
        due_now(broker)
        assert (await peer.packet()).body.endswith(b"gone")
    await until(lambda: bodies(broker, b"mail") == [b"x"])
    (job,) = machine(broker).jobs.values()
    assert job.priority == 4


@pytest.mark.parametrize(
    "topic", ["$delayed/soon/a", "$delayed/60", "$delayed/5/$delayed/5/a", "$delayed/5/$jobs/"]
)
async def test_what_can_never_be_published_is_a_dead_letter(
    broker: Broker, device: Peer, topic: str
) -> None:
    await subscribed(device, "$jobs/$delayed/error/c", 0)
    device.send(publish_packet(topic, b"x", qos=1, packet_id=7))
    found = [await device.packet(), await device.packet()]
    assert sorted(each.type for each in found) == [3, 4]
    assert bodies(broker, b"$delayed!dead") == [b"x"]


class Judge(Plugin):
    """Lets everybody publish, until it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.verdict: Any = True

    @hook
    def auth_on_register(self) -> bool:
        return True

    @hook
    async def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> Any:
        self.seen.append((username, subscriber_id.client_id, message.topic, message.action))
        return self.verdict

    @hook
    def auth_on_subscribe(self) -> bool:
        return True


async def test_plugins_are_asked_when_it_comes_and_when_it_is_due(tmp_path: Path) -> None:
    judge = Judge()
    async with Broker(config_of(tmp_path), plugins={"judge": judge}) as broker:
        async with session_of(broker, listener=TCP, username="ada", password=b"") as peer:
            for number, target in enumerate(("a/b", "$jobs/mail;ttl=9"), 1):
                peer.send(publish_packet(f"$delayed/1000/{target}", b"x", qos=1, packet_id=number))
                await peer.expect(b"\x40\x02\x00" + bytes([number]))
        asked = [("ada", "c", "a/b", ""), ("ada", "c", "$jobs/mail", "add")]
        assert judge.seen == asked
        judge.verdict = Refuse("not any more")
        due_now(broker)
        await until(lambda: len(bodies(broker, b"$delayed!dead")) == 2)
        assert judge.seen == asked * 2
        assert {each.reason for each in machine(broker).jobs.values()} == {"refused: not any more"}


async def test_what_cannot_be_published_now_is_tried_for_as_long_as_it_lives(
    tmp_path: Path,
) -> None:
    judge = Judge()
    config = config_of(tmp_path, jobs={"*": JobOptions(max_deliveries=2, groups=["g"])})
    async with Broker(config, plugins={"judge": judge}) as broker:
        async with session_of(broker, listener=TCP, username="ada", password=b"") as peer:
            await peer.ask(
                publish_packet("$delayed/1000/a", b"x", qos=1, packet_id=7), b"\x40\x02\x00\x07"
            )
        jobs = machine(broker)
        (job,) = jobs.jobs.values()

        async def tried_again(verdict: object) -> None:
            before = len(judge.seen)
            judge.verdict = verdict
            jobs.timers.set(job, 0.0, broker.jobs.open().core.clock())
            await until(lambda: len(judge.seen) > before)

        for _ in range(3):
            await tried_again(Refuse("nobody can tell", unavailable=True))
        await tried_again(True)
        await until(lambda: not jobs.jobs)
        assert not jobs.counts.dead


async def test_nobody_else_touches_the_queue_of_delayed_messages(
    broker: Broker, device: Peer
) -> None:
    device.send(subscribe_packet(1, ("$jobs/$delayed", 1), ("$delayed/5/a", 1)))
    await device.expect(b"\x90\x04\x00\x01\x80\x80")
    with pytest.raises(ValueError, match="the broker's own"):
        await broker.jobs.add("$delayed", b"x")
    with pytest.raises(ValueError, match="the broker's own"):
        await anext(broker.jobs.take("$delayed"))
    device.send(publish_packet("$jobs/$delayed", b"x", qos=1, packet_id=7))
    assert await device.rest() == b""


async def test_an_operator_sees_topic_and_payload(broker: Broker, device: Peer) -> None:
    device.send(publish_packet("$delayed/1000/a/b", b"text", qos=1, packet_id=7))
    await device.packet()
    (row,) = await peek(broker, "$delayed", "", Selection(), 64, True).rows()
    assert (row.topic, row.body, row.encoding) == ("a/b", "text", "text")
