"""Mappings in a broker: from topics and queues, to jobs and topics, what fails, restarts, live changes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.until import until
from tests.support.wire import puback_packet, publish_packet
from tests.vmq.jobs.mappings.test_mapping import options
from tests.vmq.jobs.mqtt.test_due import due_now, subscribed
from tests.vmq.jobs.mqtt.test_publishing import bodies, connected
from tests.vmq.jobs.serving import TCP, client_of, config_of, machine
from tests.vmq.sockets import peer_of, session_of
from vmq.admin.errors import AdminError, NotFoundError
from vmq.admin.jobs.mappings import list_mappings, switch, try_out
from vmq.admin.jobs.queues import pause
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.config.mappings import MappingOptions
from vmq.config.options import Config
from vmq.config.sources import ConfigError
from vmq.jobs.mappings.service import MappingWorker

HOT = options(
    "sensors/+/temp",
    "$jobs/alerts;priority=3",
    "alerts/${level(2)}",
    where="json.value > 30.0",
    payload="{'site': level(2), 'value': json.value}",
)


def config(folder: Path, mappings: dict[str, MappingOptions], **others: Any) -> Config:
    return msgspec.structs.replace(config_of(folder, **others), mappings=mappings)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_of_a_filter_become_jobs_and_messages(tmp_path: Path, qos: int) -> None:
    async with (
        Broker(config(tmp_path, {"hot": HOT})) as broker,
        peer_of(broker, TCP) as device,
        peer_of(broker, TCP) as watcher,
    ):
        await connected(device, "device")
        await connected(watcher, "watcher")
        await subscribed(watcher, "alerts/+", 1)
        for number, value in enumerate((29, 31), 1):
            topic, body = "sensors/zagreb/temp", b'{"value": %d}' % value
            device.send(publish_packet(topic, body, qos=qos, packet_id=number if qos else None))
            if qos:
                await device.expect(bytes([0x40 if qos == 1 else 0x50, 2, 0, number]))
                # Whoever is acknowledged may rely on it.
                assert len(bodies(broker, b"alerts")) == number - 1
        await until(lambda: bodies(broker, b"alerts"))
        expected = b'{"site":"zagreb","value":31}'
        assert bodies(broker, b"alerts") == [expected]
        assert [int(each.priority) for each in machine(broker).queues[b"alerts"].oldest(1)] == [3]
        message = publish_packet(
            "alerts/zagreb", expected, qos=min(qos, 1), packet_id=1 if qos else None
        )
        await watcher.expect(message)
        if qos:
            watcher.send(puback_packet(1))
        await until(lambda: len(machine(broker).jobs) == 1)
        (row,) = list_mappings(broker)
        assert (row.mapping, row.seen, row.sent, row.failed) == ("hot", 2, 2, 0)
        assert any(each.name == "mapping_sent" for each in broker.jobs.families())


async def test_jobs_of_a_group_become_others_once(tmp_path: Path) -> None:
    mappings = {"audit": options("$jobs/orders@audit", "$jobs/log", "done/${json.id}")}
    jobs = {"orders": JobOptions(groups=["mail", "audit"])}
    async with (
        Broker(config(tmp_path, mappings, jobs=jobs)) as broker,
        peer_of(broker, TCP) as watcher,
        client_of(broker) as redis,
    ):
        await connected(watcher, "watcher")
        await subscribed(watcher, "done/+", 1)
        await redis.execute_command("ADDJOB", "orders", '{"id": 7}', 0)
        await watcher.expect(publish_packet("done/7", b'{"id": 7}', qos=1, packet_id=1))
        watcher.send(puback_packet(1))
        await until(lambda: len(machine(broker).jobs) == 2)
        assert bodies(broker, b"log") == bodies(broker, b"orders@mail") == [b'{"id": 7}']
        assert not machine(broker).queues[b"orders@audit"].jobs

        # What comes of a job has an id that follows from its: given to the mapping again, it is the same.
        worker = broker.jobs.open().mappings.workers[0]
        await redis.execute_command("PAUSE", "orders@audit", "out")
        await redis.execute_command("ADDJOB", "orders", '{"id": 8}', 0)
        (source,) = machine(broker).queues[b"orders@audit"].oldest(1)
        for _ in range(2):
            worker.sender.send_job(worker.mapping, source, source.body or b"", "")
        assert bodies(broker, b"log") == [b'{"id": 7}', b'{"id": 8}']


async def test_a_mapping_of_a_queue_with_groups_tells_why_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.jobs.mappings.service._AGAIN", 0)
    given = {"all": options("$jobs/orders", "$jobs/log")}
    groups = {"orders": JobOptions(groups=["mail", "audit"])}
    async with Broker(config(tmp_path, given, jobs=groups)) as broker, client_of(broker) as redis:
        why = "the jobs of orders go to its groups: take from orders@mail, orders@audit"
        await until(lambda: why in list_mappings(broker)[0].error)
        assert why in caplog.text
        assert any(why in each for each in broker.jobs.open().mappings.problems())
        # The groups are taken out.
        machine(broker).queues[b"orders"].rules = machine(broker).rules_of(b"other")
        await redis.execute_command("ADDJOB", "orders", "x", 0)
        await until(lambda: bodies(broker, b"log") == [b"x"])
        assert list_mappings(broker)[0].error == ""


async def test_a_mapping_of_a_paused_queue_tells_why_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"all": options("$jobs/orders", "$jobs/log")}
    for is_again in (False, True):
        async with Broker(config(tmp_path, given)) as broker:
            if not is_again:
                await pause(broker, "orders", "", "out")
            await until(lambda: "paused" in list_mappings(broker)[0].error)
            assert caplog.text.count("waits reason") == 1 + is_again
            assert "mapping all waits" in " ".join(broker.jobs.open().mappings.problems())
            if is_again:
                await pause(broker, "orders", "", "none")
                await until(lambda: list_mappings(broker)[0].error == "")


async def test_a_queue_that_cannot_be_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.jobs.mappings.service._AGAIN", 0)
    async with Broker(config(tmp_path, {"m": options("$jobs/in", "$jobs/out")})) as broker:
        (worker,) = broker.jobs.open().mappings.workers
        assert isinstance(worker, MappingWorker)
        jobs = machine(broker)
        worker.stop()
        worker.is_over = False
        jobs.queues.clear()
        jobs.max_queues = 0
        worker.ask()
        assert worker.waiter is None
        jobs.max_queues = 9
        await until(lambda: worker.waiter is not None)


async def test_what_fails_is_counted_and_dead_as_the_mapping_says(tmp_path: Path) -> None:
    mappings = {
        "skips": options("a", "x", where="json.value > 1"),
        "keeps": options("a", "x", where="json.value > 1", on_error="dead"),
        "full": options("b", "$jobs/full", on_error="dead"),
        "works": options("$jobs/in", "out/${json}"),
    }
    jobs = {"full": JobOptions(maxlen=1)}
    async with (
        Broker(config(tmp_path, mappings, jobs=jobs)) as broker,
        peer_of(broker, TCP) as device,
        client_of(broker) as redis,
    ):
        await connected(device)
        for number, topic in enumerate(("a", "b", "b"), 1):
            device.send(publish_packet(topic, b"no JSON", qos=1, packet_id=number))
            await device.expect(bytes([0x40, 2, 0, number]))
        assert bodies(broker, b"keeps!dead") == bodies(broker, b"full!dead") == [b"no JSON"]
        assert b"skips!dead" not in machine(broker).queues
        await redis.execute_command("ADDJOB", "in", '"a/b"', 0)
        await until(lambda: bodies(broker, b"in!dead"))
        (dead,) = machine(broker).queues[b"in!dead"].oldest(1)
        assert dead.reason.startswith("mapping works: a level has no $ first and no /")
        rows = {each.mapping: (each.failed, each.error[:13]) for each in list_mappings(broker)}
        assert rows["skips"] == rows["keeps"] == (1, "the payload i")
        assert rows["full"] == (1, "MAXLEN Queue ")
        assert any("mapping full failed 1 times" in each for each in broker.jobs.problems())


async def test_a_node_that_cannot_add_acknowledges_nothing(tmp_path: Path) -> None:
    async with (
        Broker(config(tmp_path, {"hot": HOT})) as broker,
        session_of(broker, listener=TCP) as device,
    ):
        machine(broker).max_memory = 0
        device.send(
            publish_packet("sensors/x/temp", b'{"value": 99}', qos=1, packet_id=1),
            publish_packet("sensors/x/temp", b'{"value": 1}', qos=0),
        )
        assert await device.rest() == b""
        assert not machine(broker).jobs


async def test_switched_off_and_on_also_over_restarts_and_changed_live(tmp_path: Path) -> None:
    only = {"m": options("a", "$jobs/q"), "w": options("$jobs/in", "$jobs/out")}

    async def sent(broker: Broker) -> int:
        async with session_of(broker, listener=TCP) as device:
            await device.ask(publish_packet("a", b"x", qos=1, packet_id=1), b"\x40\x02\x00\x01")
        return len(bodies(broker, b"q"))

    async with Broker(config(tmp_path, only)) as broker:
        assert await sent(broker) == 1
        assert not switch(broker, "m", is_enabled=False).enabled
        switch(broker, "w", is_enabled=False)
        await broker.jobs.add("in", b"x")
        assert await sent(broker) == 1
        assert bodies(broker, b"in") == [b"x"]
        with pytest.raises(NotFoundError, match="accepted: m, w"):
            switch(broker, "n", is_enabled=False)
    async with Broker(config(tmp_path, only)) as broker:
        assert await sent(broker) == 1
        switch(broker, "w", is_enabled=True)
        await until(lambda: bodies(broker, b"out") == [b"x"])
        switch(broker, "m", is_enabled=True)
        assert await sent(broker) == 2
        changed = config(tmp_path, {"m": options("a", "$jobs/q", "$jobs/q")})
        broker.reload(changed)
        assert await sent(broker) == 4
        with pytest.raises(ConfigError, match=r"m.where.*column 1"):
            broker.reload(config(tmp_path, {"m": options("a", "b", where="nope")}))
        broker.reload(config(tmp_path, {}))
        assert await sent(broker) == 4


async def test_a_mapping_is_tried_and_nothing_is_sent(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, {"hot": HOT})) as broker:
        tried = try_out(broker, "hot", "sensors/x/temp", b'{"value": 31}', 1, "c")
        assert (tried.wanted, tried.error) == (True, "")
        assert [each.target for each in tried.to] == ["$jobs/alerts;priority=3", "alerts/x"]
        assert not try_out(broker, "hot", "sensors/x/temp", b'{"value": 1}', 1, "c").wanted
        assert "JSON" in try_out(broker, "hot", "sensors/x/temp", b"", 1, "c").error
        with pytest.raises(AdminError, match="which topic"):
            try_out(broker, "hot", "", b"", 1, "c")
        with pytest.raises(AdminError, match="no topic of"):
            try_out(broker, "hot", "x", b"", 1, "c")
        assert not machine(broker).jobs


async def test_a_delayed_target_and_a_mountpoint(tmp_path: Path) -> None:
    mappings = {"later": options("a", "$delayed/1h/b", "$delayed/1h/$jobs/q")}
    async with (
        Broker(config(tmp_path, mappings)) as broker,
        session_of(broker, listener=TCP) as peer,
    ):
        await subscribed(peer, "b", 1)
        await peer.ask(publish_packet("a", b"x", qos=1, packet_id=1), b"\x40\x02\x00\x01")
        assert {each.is_delayed for each in machine(broker).jobs.values()} == {True}
        due_now(broker)
        await peer.expect(publish_packet("b", b"x", qos=1, packet_id=1))
        await until(lambda: bodies(broker, b"q") == [b"x"])
