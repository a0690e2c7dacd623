"""Jobs that clients of MQTT publish: every QoS, options, refusals, waiting, wills, rights."""

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any, Unpack

import msgspec
import pytest
from vmq_hooks import Plugin, Refuse, hook
from vmq_hooks.types import Message, SubscriberId, Subscription

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import ConnectFields, Will, publish_packet, subscribe_packet
from tests.vmq.jobs.serving import TCP, config_of, machine, named
from tests.vmq.sockets import Peer, peer_of, session_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.config.mappings import MappingOptions
from vmq.config.options import LimitOptions


def bodies(broker: Broker, queue: bytes) -> list[bytes]:
    """The jobs that are queued."""
    found = machine(broker).queues.get(queue)
    return [] if found is None else [each.body or b"" for each in found.oldest(1000)]


def job(topic: str, body: bytes, qos: int = 1, packet_id: int = 7, dup: bool = False) -> bytes:
    return publish_packet(topic, body, qos=qos, packet_id=packet_id if qos else None, dup=dup)


async def connected(peer: Peer, client_id: str = "c", **fields: Unpack[ConnectFields]) -> None:
    assert (await peer.connect(client_id, **fields)).raw[3] == 0


async def test_a_job_of_every_qos(broker: Broker, device: Peer) -> None:
    device.send(job("$jobs/mail", b"zero", 0), job("$jobs/mail;priority=1", b"one"))
    await device.expect(b"\x40\x02\x00\x07")
    device.send(job("$jobs/mail", b"two", 2, 8), job("$jobs/mail", b"two", 2, 8, dup=True))
    await device.expect(b"\x50\x02\x00\x08", b"\x50\x02\x00\x08")
    device.send(b"\x62\x02\x00\x08", job("$jobs/mail", b"again", 2, 8))
    await device.expect(b"\x70\x02\x00\x08", b"\x50\x02\x00\x08")
    assert bodies(broker, b"mail") == [b"one", b"zero", b"two", b"again"]


async def test_the_first_job_at_all_comes_by_mqtt(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config = msgspec.structs.replace(config, listeners={"tcp": config.listeners["tcp"]})
    async with Broker(config) as broker, peer_of(broker) as peer:
        assert broker.jobs.service is None
        await connected(peer)
        await peer.ask(job("$jobs/mail", b"x"), b"\x40\x02\x00\x07")
    async with Broker(config) as broker:
        assert broker.jobs.service is not None
        found = machine(broker)
        assert [each.queue.name for each in found.jobs.values()] == [b"mail"]


async def test_what_the_store_knows_of_a_publish_the_jobs_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends between its two logs, before PUBREC leaves: what comes again adds nothing, and all is there."""
    config = config_of(tmp_path / "first")
    mappings = {"hot": msgspec.convert({"from": "hot", "to": ["$jobs/mapped"]}, MappingOptions)}
    config = msgspec.structs.replace(config, mappings=mappings)
    copies: list[Path] = []
    async with Broker(config) as broker, session_of(broker, listener=TCP, clean=False) as peer:
        committer = present(broker.jobs.committer)
        write = committer.write

        def write_and_copy(store: Any) -> None:
            write(store)
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(config.broker.data_dir, copies[-1])

        monkeypatch.setattr(committer, "write", write_and_copy)
        for packet_id, topic in ((7, "$jobs/mail"), (8, "hot")):
            await peer.ask(job(topic, b"once", 2, packet_id), b"\x50\x02\x00" + bytes([packet_id]))
        monkeypatch.undo()
    for copy in copies:
        options = msgspec.structs.replace(config.broker, data_dir=str(copy))
        again = msgspec.structs.replace(config, broker=options)
        async with Broker(again) as broker, session_of(broker, listener=TCP, clean=False) as peer:
            for packet_id, topic in ((7, "$jobs/mail"), (8, "hot")):
                peer.send(job(topic, b"once", 2, packet_id, dup=True))
                await peer.expect(b"\x50\x02\x00" + bytes([packet_id]))
            names = sorted(each.queue.name for each in machine(broker).jobs.values())
            assert names == [b"mail", b"mapped"]


async def test_options_of_the_topic(broker: Broker, device: Peer, redis: Any) -> None:
    topic = "$jobs/a%2Fb;delay=60;retry=7;ttl=700;priority=4;key=k%3D;maxlen=3;replicate=1"
    device.send(job(topic, b"x"), job(topic, b"y", 1, 8))
    await device.expect(b"\x40\x02\x00\x07", b"\x40\x02\x00\x08")
    (only,) = machine(broker).jobs.values()
    shown = named(await redis.execute_command("SHOW", only.id))
    assert (shown[b"queue"], shown[b"key"], shown[b"body"]) == (b"a/b", b"k=", b"x")
    assert (shown[b"delay"], shown[b"retry"], shown[b"priority"]) == (60, 7, 4)


@pytest.mark.parametrize(
    ("topic", "reason", "qos"),
    [
        ("$jobs/mail;dealy=3", "not an option of adding: dealy", 0),
        ("$jobs/mail;DELAY=3", "not an option of adding: DELAY", 1),
        ("$jobs/mail;delay=soon", "DELAY time must be", 2),
        ("$jobs/mail;priority=10", "PRIORITY must be", 0),
        ("$jobs/mail;ttl", "NAME=VALUE", 1),
        ("$jobs/mail;key=", "a KEY has", 2),
        ("$jobs/mail;retry=0;replicate=2", "explicitly set REPLICATE to 1", 0),
        ("$jobs/mail/done", "not known: done", 1),
        ("$jobs/mail", "TOOBIG", 2),
    ],
)
async def test_what_can_never_be_done_is_a_dead_letter(
    tmp_path: Path, topic: str, reason: str, qos: int
) -> None:
    config = config_of(tmp_path, limits=LimitOptions(max_job_size=100))
    async with Broker(config) as broker, session_of(broker, "c/1", listener=TCP) as peer:
        await peer.ask(subscribe_packet(1, ("$jobs/mail/error/c%2F1", 0)), b"\x90\x03\x00\x01\x00")
        body = b"x" * (200 if reason == "TOOBIG" else 50)
        peer.send(job(topic, body, qos))
        packets = [await peer.packet() for _ in range(2 if qos else 1)]
        told = next(each for each in packets if each.type == 3).body
        if qos:
            acknowledgement = b"\x40\x02\x00\x07" if qos == 1 else b"\x50\x02\x00\x07"
            assert acknowledgement in [each.raw for each in packets]
        error = json.loads(told[told.index(b"{") :])
        assert reason in error["reason"]
        assert bodies(broker, b"mail") == []
        assert bodies(broker, b"mail!dead") == [body[:100]]
        (dead,) = machine(broker).jobs.values()
        assert dead.id.decode() == error["id"]
        assert reason in dead.reason
        assert machine(broker).counts.refused == 1


@pytest.mark.parametrize("topic", ["$jobs/", "$jobs/%zz", "$jobs/mail!dead", "$jobs/" + "q" * 600])
async def test_without_a_queue_that_it_may_be_for_the_connection_ends(
    broker: Broker, device: Peer, topic: str
) -> None:
    device.send(job(topic, b"x"))
    assert await device.rest() == b""
    assert not machine(broker).jobs


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_may_be_done_later_holds_the_client_until_it_is(
    broker: Broker, device: Peer, qos: int
) -> None:
    found = machine(broker)
    queue = found.queue(b"mail", 0.0)
    found.pause(queue, True, False)
    device.send(job("$jobs/mail", b"first", qos), job("$jobs/mail", b"second", 1, 9))
    publishing = broker.jobs.open().mqtt.publishing
    await until(lambda: len(publishing.waiting) == 1)
    found.pause(queue, False, False)
    wanted = {0: [], 1: [b"\x40\x02\x00\x07"], 2: [b"\x50\x02\x00\x07"]}[qos]
    await device.expect(*wanted, b"\x40\x02\x00\x09")
    assert bodies(broker, b"mail") == [b"first", b"second"]
    assert not publishing.waiting


@pytest.mark.parametrize("topic", ["$jobs/mail;maxlen=1", "$jobs/mail;replicate=3"])
async def test_who_waits_too_long_is_closed_unacknowledged(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vmq.jobs")
    config = config_of(tmp_path, jobs={"mail": JobOptions(refuse_after=1)})
    async with Broker(config) as broker, session_of(broker, listener=TCP) as peer:
        await peer.ask(job("$jobs/mail", b"x"), b"\x40\x02\x00\x07")
        peer.send(job(topic, b"y", 1, 9))
        assert await peer.rest() == b""
        assert bodies(broker, b"mail") == [b"x"]
        (said,) = (each for each in caplog.messages if "refused" in each)
        assert "id=" not in said


async def test_who_goes_away_while_it_waits_is_forgotten(broker: Broker) -> None:
    found = machine(broker)
    found.pause(found.queue(b"mail", 0.0), True, False)
    publishing = broker.jobs.open().mqtt.publishing
    async with session_of(broker, listener=TCP) as peer:
        peer.send(job("$jobs/mail", b"x"))
        await until(lambda: publishing.waiting)
        present(broker.connections).close("gone")
        await until(lambda: not publishing.waiting)
    assert not found.jobs


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_disk_that_fails_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, peer: Peer, qos: int
) -> None:
    await connected(peer, clean=False)
    service = broker.jobs.open()
    store = present(present(service.committer).store)

    def fail(_pieces: list[bytes]) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(service.segments, "append", fail)
        peer.send(job("$jobs/mail", b"x", qos))
        assert await peer.rest() == b""
        # What a session knows of a job is not on disk before that.
        assert store.load_received(broker.registries[""].subscribers["c"].queue.session) == []


async def test_ids_that_are_acknowledged_given_up_and_worked_at(
    broker: Broker, device: Peer, redis: Any
) -> None:
    do = redis.execute_command
    first, second, other = [
        (await do("ADDJOB", queue, "x", 0)).decode() for queue in ("mail", "mail", "other")
    ]
    await do("GETJOB", "COUNT", 3, "FROM", "mail", "other")
    await device.ask(subscribe_packet(1, ("$jobs/mail/error/c", 0)), b"\x90\x03\x00\x01\x00")
    device.send(job("$jobs/mail/working", second.encode()))
    device.send(job("$jobs/mail/ack", f"{first}\r\n{other}\n\n".encode(), 1, 8))
    device.send(job("$jobs/mail/nack", second.encode(), 2, 9))
    await device.expect(b"\x40\x02\x00\x07", b"\x40\x02\x00\x08", b"\x50\x02\x00\x09")
    assert set(machine(broker).jobs) == {second.encode(), other.encode()}
    assert (await do("QLEN", "mail"), await do("QLEN", "other")) == (1, 0)
    device.send(job("$jobs/mail/ack", b"nonsense", 0))
    assert b"BADID" in (await device.packet()).raw
    device.send(job("$jobs/mail/working", first.encode(), 0))
    assert b"NOJOB" in (await device.packet()).raw


async def test_a_will_is_a_job(broker: Broker) -> None:
    for topic in ("$jobs/mail;priority=3", "$jobs/mail;priority=x"):
        async with peer_of(broker, TCP) as peer:
            await connected(peer, will=Will(topic, b"gone"))
    await until(lambda: len(machine(broker).jobs) == 2)
    assert bodies(broker, b"mail") == [b"gone"]
    assert bodies(broker, b"mail!dead") == [b"gone"]


class Guard(Plugin):
    """Lets nobody but `maker` add, and nobody but `worker` take."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    @hook
    def auth_on_register(self, username: str | None) -> bool:
        return username is not None

    @hook
    async def auth_on_publish(
        self, username: str | None, subscriber_id: SubscriberId, message: Message
    ) -> bool:
        self.seen.append((message.action, message.topic))
        if username != "maker":
            raise Refuse("not a maker")
        return True

    @hook
    async def auth_on_subscribe(
        self, username: str | None, subscriber_id: SubscriberId, subscriptions: list[Subscription]
    ) -> list[Subscription]:
        self.seen += [(each.action, each.topic_filter) for each in subscriptions]
        return [
            Subscription(each.topic_filter, each.qos if username == "worker" else 128)
            for each in subscriptions
        ]


async def test_plugins_see_the_queue_and_what_is_to_be_done_with_it(tmp_path: Path) -> None:
    guard = Guard()
    async with Broker(config_of(tmp_path), plugins={"guard": guard}) as broker:
        async with session_of(broker, "m", listener=TCP, username="maker", password=b"") as peer:
            await peer.ask(job("$jobs/mail;ttl=60", b"x"), b"\x40\x02\x00\x07")
            await peer.ask(subscribe_packet(1, ("$jobs/mail", 1)), b"\x90\x03\x00\x01\x80")
            peer.send(job("$jobs/mail/ack", b"x"))
            assert await peer.rest() == b""
        async with session_of(broker, "w", listener=TCP, username="worker", password=b"") as peer:
            peer.send(subscribe_packet(1, ("$jobs/mail;prefetch=3/manual/+", 1)))
            await peer.expect(b"\x90\x03\x00\x01\x01")
            assert b"$jobs/mail/manual/D-" in (await peer.packet()).raw
            peer.send(job("$jobs/mail", b"x"))
            assert await peer.rest() == b""
    assert guard.seen == [
        ("add", "$jobs/mail"),
        *[("take", "$jobs/mail")] * 3,
        ("add", "$jobs/mail"),
    ]


async def test_where_jobs_have_ended_nobody_works_and_who_adds_one_is_closed(
    broker: Broker, device: Peer
) -> None:
    from vmq.core.ports import JobsPort

    broker.registry().core.jobs = JobsPort()  # as when the broker ends
    await device.ask(subscribe_packet(1, ("$jobs/mail", 1)), b"\x90\x03\x00\x01\x80")
    device.send(job("$jobs/mail", b"x"))
    assert await device.rest() == b""


async def test_topics_of_jobs_are_nobody_elses(broker: Broker, device: Peer) -> None:
    device.send(
        subscribe_packet(1, ("#", 1), ("$jobs/#", 1), ("$jobs/+", 1), ("$share/g/$jobs/mail", 1))
    )
    await device.expect(b"\x90\x06\x00\x01\x01\x80\x80\x80")
    registry = broker.registry()
    for number in range(20):
        device.send(job(f"$jobs/mail;key={number}", b"x", 1, number + 1))
        await device.expect(b"\x40\x02\x00" + bytes([number + 1]))
    assert not [each for each in registry.routes.young if each.startswith(b"$jobs")]
    assert registry.retained.count == 0
    await asyncio.sleep(0)
    assert machine(broker).queues[b"mail"].depth == 20


#: What topics are put together from, behind one of the beginnings.
BEGINNINGS = ("$jobs/", "$delayed/")
PARTS = (
    *BEGINNINGS,
    *("mail", "a%2Fb", "%", "%zz", "%ff", ";", "=", "delay", "ttl=1", "key=k", "/"),
    *(
        "ack",
        "nack",
        "working",
        "manual",
        "+",
        "!dead",
        "$",
        "60",
        "-15m",
        "\u017e",
        " ",
        "q" * 300,
    ),
)


async def test_whatever_is_published_is_answered_or_ends_its_own_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each PUBLISH at QoS 1 is a job, a dead letter, a delayed message, or the end of the connection; never nothing."""
    chance = random.Random(7)
    config = config_of(tmp_path, jobs={"*": JobOptions(refuse_after=1, maxlen=10_000)})
    async with Broker(config) as broker:
        closed = kept = 0
        for _ in range(60):
            async with session_of(broker, listener=TCP) as peer:
                before = len(machine(broker).jobs) + machine(broker).counts.deduplicated
                topics = [
                    chance.choice(BEGINNINGS)
                    + "".join(chance.choices(PARTS, k=chance.randrange(6)))
                    for _ in range(8)
                ]
                peer.send(
                    *[job(each, b"D-x\n", 1, number) for number, each in enumerate(topics, 1)]
                )
                peer.send(b"\xe0\x00")
                answers = await peer.rest()
                acknowledged = [answers[at + 3] for at in range(0, len(answers), 4)]
                assert acknowledged == list(range(1, len(acknowledged) + 1))
                closed += len(acknowledged) < len(topics)
                settled = sum(
                    each.rpartition("/")[2] in {"ack", "nack", "working"} and ";" not in each
                    for each in topics[: len(acknowledged)]
                )
                added = len(machine(broker).jobs) + machine(broker).counts.deduplicated - before
                assert added >= len(acknowledged) - settled
                kept += added
        assert closed
        assert kept
    assert "internal error" not in caplog.text
