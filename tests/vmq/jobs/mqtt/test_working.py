"""Workers that are clients of MQTT: what they get, when it is theirs no more, and with which clients that was tried."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Unpack

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.jobs.serving import TCP, client_of, config_of, machine
from tests.vmq.sockets import Peer, peer_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.config.options import QueueOptions
from vmq.config.values import Endpoint
from vmq.jobs.queue import ACTIVE


async def working(
    peer: Peer, *filters: str, client_id: str = "w", **fields: Unpack[mqtt.ConnectFields]
) -> None:
    """Connects and subscribes."""
    assert (await peer.connect(client_id, **fields)).body[1] == 0
    peer.send(mqtt.subscribe_packet(1, *[(each, 1) for each in filters]))
    await peer.expect(b"\x90" + bytes([2 + len(filters)]) + b"\x00\x01" + b"\x01" * len(filters))


async def job_of(peer: Peer) -> mqtt.Packet:
    found = await peer.packet()
    assert (found.type, found.qos, found.dup, found.retain) == (3, 1, False, False)
    return found


async def test_a_worker_has_one_job_at_a_time_and_puback_is_done(
    broker: Broker, redis: Any, peer: Peer
) -> None:
    await working(peer, "$jobs/mail")
    for number in range(3):
        await redis.execute_command("ADDJOB", "mail", f"{number}", 0)
    for number in range(3):
        found = await job_of(peer)
        assert (found.topic, found.body[-1:]) == ("$jobs/mail", b"%d" % number)
        assert await redis.execute_command("QLEN", "mail") == 2 - number
        peer.send(mqtt.puback_packet(found.packet_id))
    await until(lambda: not machine(broker).jobs)
    assert machine(broker).counts.acknowledged == 3


async def test_as_many_as_it_wants(redis: Any, peer: Peer) -> None:
    for _ in range(10):
        await redis.execute_command("ADDJOB", "mail", "x", 0)
    await working(peer, "$jobs/mail;prefetch=4")
    found = [await job_of(peer) for _ in range(4)]
    assert await redis.execute_command("QLEN", "mail") == 6
    peer.send(*[mqtt.puback_packet(each.packet_id) for each in found[:2]])
    for _ in range(2):
        await job_of(peer)
    assert await redis.execute_command("QLEN", "mail") == 4


async def test_workers_of_one_client_leave_packet_ids_to_messages(
    broker: Broker, peer: Peer
) -> None:
    """More jobs than there are packet ids, for workers that all waited when they came."""
    filters = [f"$jobs/{number};prefetch=1000" for number in range(66)]
    await working(peer, *filters)
    service = broker.jobs.open()
    jobs, now = service.machine, service.commit.clock()
    queues = [jobs.queue(b"%d" % number, now) for number in range(66)]
    for queue in queues:
        for _ in range(1000):
            jobs.add(queue, b"", now)
    service.commit.end_pass(now)
    [worker] = broker.registries[""].subscribers.values()
    assert len(worker.queue.inflight) == 60_000
    assert sum(queue.depth for queue in queues) == 6000


async def test_by_hand_puback_says_only_that_it_came(
    broker: Broker, redis: Any, peer: Peer
) -> None:
    await working(peer, "$jobs/mail/manual/+")
    for _ in range(2):
        await redis.execute_command("ADDJOB", "mail", "x", 0)
    first = await job_of(peer)
    job_id = first.topic.removeprefix("$jobs/mail/manual/")
    assert job_id.encode() in machine(broker).jobs
    peer.send(
        mqtt.puback_packet(first.packet_id), mqtt.publish_packet("$jobs/mail/nack", job_id.encode())
    )
    again = await job_of(peer)
    assert again.topic == first.topic
    peer.send(
        mqtt.puback_packet(again.packet_id),
        mqtt.publish_packet("$jobs/mail/ack", job_id.encode(), qos=1, packet_id=5),
    )
    found = [await peer.packet(), await peer.packet()]
    assert sorted(each.type for each in found) == [3, 4]
    assert job_id.encode() not in machine(broker).jobs


async def test_a_connection_that_ends_gives_its_jobs_to_others_at_once(
    broker: Broker, redis: Any
) -> None:
    async with peer_of(broker, TCP) as other:
        async with peer_of(broker, TCP) as peer:
            await working(peer, "$jobs/mail;prefetch=2", clean=False)
            for body in ("done", "lost"):
                await redis.execute_command("ADDJOB", "mail", body, 0)
            done = await job_of(peer)
            await job_of(peer)
            await working(other, "$jobs/mail", client_id="other")
            peer.send(mqtt.puback_packet(done.packet_id))
            await until(lambda: len(machine(broker).jobs) == 1)
        found = await job_of(other)
        assert found.body[-4:] == b"lost"
        assert machine(broker).counts.lost == 1
        async with peer_of(broker, TCP) as peer:
            # The durable session is there, its subscription works, and the job is not its any more.
            assert (await peer.connect("w", clean=False)).body == b"\x01\x00"
            other.send(mqtt.puback_packet(found.packet_id))
            await until(lambda: not machine(broker).jobs)
            await redis.execute_command("ADDJOB", "mail", "next", 0)
            await redis.execute_command("ADDJOB", "mail", "next", 0)
            assert (await job_of(peer)).body[-4:] == b"next"


async def test_a_job_at_most_once_is_not_given_again_when_the_connection_ends(
    broker: Broker, redis: Any
) -> None:
    async with peer_of(broker, TCP) as peer:
        await working(peer, "$jobs/mail")
        await redis.execute_command("ADDJOB", "mail", "x", 0, "RETRY", 0)
        await job_of(peer)
    await until(lambda: not machine(broker).jobs)
    assert machine(broker).counts.unconfirmed == 1


async def test_retry_begins_anew_while_the_connection_lives(tmp_path: Path) -> None:
    config = config_of(tmp_path, jobs={"mail": JobOptions(retry=1), "short": JobOptions(max_run=1)})
    async with (
        Broker(config) as broker,
        client_of(broker) as redis,
        peer_of(broker, TCP) as peer,
        peer_of(broker, TCP) as silent,
    ):
        await working(peer, "$jobs/mail", "$jobs/short")
        await working(silent, "$jobs/dead", client_id="silent", keep_alive=0)
        for queue in ("mail", "short", "dead"):
            await redis.execute_command("ADDJOB", queue, "x", 0, "RETRY", 1)
        await job_of(peer)
        await job_of(peer)
        await job_of(silent)
        # Without a keep alive nobody knows whether the client is there, and `max_run` ends what takes too long.
        await until(lambda: machine(broker).counts.retried == 2)
        counts = {
            each.queue.name: each.deliveries + each.repeats
            for each in machine(broker).jobs.values()
        }
        assert counts[b"mail"] == 1
        assert counts[b"short"] > 1
        assert counts[b"dead"] > 1


async def test_who_unsubscribes_gets_no_more_and_may_acknowledge_what_it_has(
    broker: Broker, redis: Any, peer: Peer
) -> None:
    await working(peer, "$jobs/mail;prefetch=5")
    await redis.execute_command("ADDJOB", "mail", "x", 0)
    found = await job_of(peer)
    await peer.ask(mqtt.unsubscribe_packet(2, "$jobs/mail;prefetch=5"), b"\xb0\x02\x00\x02")
    await redis.execute_command("ADDJOB", "mail", "y", 0)
    peer.send(mqtt.puback_packet(found.packet_id))
    await until(lambda: machine(broker).counts.acknowledged == 1)
    assert await redis.execute_command("QLEN", "mail") == 1


async def test_who_had_a_dead_letter_that_went_back_takes_it_from_nobody(tmp_path: Path) -> None:
    config = config_of(tmp_path, jobs={"*": JobOptions(max_deliveries=1)})
    async with Broker(config) as broker, client_of(broker) as redis, peer_of(broker, TCP) as other:
        letters = [await redis.execute_command("ADDJOB", "mail", body, 0) for body in "ab"]
        for _ in letters:
            [[_, job_id, _]] = await redis.execute_command("GETJOB", "FROM", "mail")
            await redis.execute_command("NACK", job_id)
        async with peer_of(broker, TCP) as peer:
            await working(peer, "$jobs/mail!dead")
            assert (await job_of(peer)).body[-1:] == b"a"
            await working(other, "$jobs/mail", client_id="other")
            assert await redis.execute_command("ENQUEUE", letters[0]) == 1
            assert (await job_of(other)).body[-1:] == b"a"
            assert (await job_of(peer)).body[-1:] == b"b"  # it has none any more, and gets the next
        await until(lambda: machine(broker).counts.lost == 1)
        job = machine(broker).jobs[letters[0]]
        assert (job.state, job.queue.name, job.deliveries) == (ACTIVE, b"mail", 1)


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "again"])
async def test_what_it_has_is_its_own_whatever_it_unsubscribes(
    tmp_path: Path, comes_back: bool
) -> None:
    """RETRY begins anew while the connection lives, and its end gives the job to another at once."""
    config = config_of(tmp_path, jobs={"mail": JobOptions(retry=1), "clock": JobOptions(retry=1)})
    async with Broker(config) as broker, client_of(broker) as redis, peer_of(broker, TCP) as other:
        jobs = machine(broker)
        async with peer_of(broker, TCP) as peer:
            await working(peer, "$jobs/mail;prefetch=2")
            job_id = await redis.execute_command("ADDJOB", "mail", "x", 0)
            await job_of(peer)
            await peer.ask(mqtt.unsubscribe_packet(2, "$jobs/mail;prefetch=2"), b"\xb0\x02\x00\x02")
            if comes_back:
                peer.send(mqtt.subscribe_packet(3, ("$jobs/mail;prefetch=2", 1)))
                await peer.expect(b"\x90\x03\x00\x03\x01")
                for _ in range(2):
                    await redis.execute_command("ADDJOB", "mail", "y", 0)
                await job_of(peer)
                assert await redis.execute_command("QLEN", "mail") == 1  # it has two
                await redis.execute_command(
                    "DELJOB", *[each.id for each in list(jobs.jobs.values()) if each.id != job_id]
                )
            # Somebody else's job is given again twice meanwhile, since its worker says nothing.
            await redis.execute_command("ADDJOB", "clock", "x", 0)
            for _ in range(3):
                await redis.execute_command("GETJOB", "FROM", "clock")
            assert jobs.counts.retried == 2
            assert jobs.jobs[job_id].state == ACTIVE
            await working(other, "$jobs/mail", client_id="other")
        assert (await job_of(other)).body[-1:] == b"x"
        assert jobs.counts.lost == 1


@pytest.mark.parametrize(
    ("topic_filter", "qos"),
    [
        ("$jobs/mail", 0),
        ("$jobs/mail;prefetch=0", 1),
        ("$jobs/mail;prefetch=1001", 1),
        ("$jobs/mail;window=1", 1),
        ("$jobs/mail/ack", 1),
        ("$jobs/mail/#", 1),
        ("$jobs/mail/manual/+", 1),
    ],
)
async def test_no_worker_and_the_error_topic_says_why(
    broker: Broker, peer: Peer, topic_filter: str, qos: int
) -> None:
    machine(broker).queue(b"mail", 0.0).rules.groups = [b"letters"]
    await peer.connect("w")
    peer.send(mqtt.subscribe_packet(1, ("$jobs/mail/error/w", 0), (topic_filter, qos)))
    found = {each.type: each for each in [await peer.packet(), await peer.packet()]}
    assert found[9].body == b"\x00\x01\x00\x80"
    assert b'"reason"' in found[3].body


async def test_a_grant_of_qos_2_is_one_of_qos_1(peer: Peer) -> None:
    await peer.connect("w")
    await peer.ask(mqtt.subscribe_packet(1, ("$jobs/mail", 2)), b"\x90\x03\x00\x01\x01")


async def test_workers_of_every_kind_share_a_queue(broker: Broker, redis: Any) -> None:
    """Jobs added over RESP and MQTT; done by paho, aiomqtt, redis-py and the process itself: each once."""
    done: Counter[bytes] = Counter()
    loop = asyncio.get_running_loop()
    port = Endpoint.parse(broker.listeners["tcp"].url).port

    def on_message(client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        loop.call_soon_threadsafe(done.update, [bytes(message.payload)])

    client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv311)
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.subscribe("$jobs/mail;prefetch=2", 1)

    # What is done is counted behind each acknowledgement: who is cancelled while one is on its way may miss that
    # (asyncio.wait_for of Python 3.11).

    async def by_hand() -> None:
        async with aiomqtt.Client("127.0.0.1", port, identifier="hand") as worker:
            await worker.subscribe("$jobs/mail/manual/+", 1)
            async for message in worker.messages:
                job_id = message.topic.value.rpartition("/")[2]
                await worker.publish("$jobs/mail/ack", job_id, 1)
                done[bytes(message.payload)] += 1

    async def inside() -> None:
        async for job in broker.jobs.take("mail"):
            await job.ack()
            done[job.body] += 1

    async def by_resp() -> None:
        async with client_of(broker) as worker:
            while True:
                [[_, job_id, body]] = await worker.execute_command("GETJOB", "FROM", "mail")
                await worker.execute_command("ACKJOB", job_id)
                done[body] += 1

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(each()) for each in (by_hand, inside, by_resp)]
        async with aiomqtt.Client("127.0.0.1", port, identifier="maker") as maker:
            for number in range(30):
                await maker.publish("$jobs/mail", b"mqtt %d" % number, number % 3)
                await redis.execute_command("ADDJOB", "mail", b"resp %d" % number, 0)
        await until(lambda: len(done) == 60 and not machine(broker).jobs)
        for each in workers:
            each.cancel()
    client.disconnect()
    client.loop_stop()
    assert set(done.values()) == {1}


async def test_a_worker_gets_messages_whatever_it_works_at(broker: Broker, peer: Peer) -> None:
    await working(peer, "$jobs/q;prefetch=1000", "t")
    count = 2 * QueueOptions().max_inflight_messages
    for _ in range(count):
        await broker.jobs.add("q", b"x")
    for _ in range(count):
        await job_of(peer)
    peer.send(mqtt.publish_packet("t", b"m", qos=1, packet_id=1))
    found = [await peer.packet() for _ in range(2)]
    assert {each.type for each in found} == {mqtt.PUBACK, mqtt.PUBLISH}
