"""Simulated devices over real connections."""

import json
import random
from collections.abc import Callable, Iterator

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire
from vmq.bench.load.address import parse_address
from vmq.bench.load.loop import Loop
from vmq.bench.load.transport import LoadEndpoint
from vmq.cli.demo_devices import FAULTY, PERIOD, Device, Field


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess.start() as process:
        yield process


def endpoint(broker: BrokerProcess) -> LoadEndpoint:
    return LoadEndpoint(parse_address("mqtt://{}:{}".format(*broker.tcp)))


def until(field: Field, is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        field.step(0.05)
        assert not field.problem
        if is_so():
            return
    raise AssertionError("it does not come")


def test_devices_publish_and_alerts_are_seen(broker: BrokerProcess) -> None:
    field = Field(endpoint(broker), 45)
    with Wire.connect_tcp(broker.tcp) as wire:
        wire.connect("test")
        wire.subscribe(("sensors/#", 0))
        until(field, lambda: field.sent >= 60)
        assert field.loop.up == 46
        topics = {}
        for _ in range(60):
            packet = wire.expect_publish()
            topics[packet.topic] = json.loads(packet.payload)
        assert "sensors/site-02/device-04/temp" in topics
        assert all(0 < each["value"] < 60 and each["time"] > 1e9 for each in topics.values())
        alert = {"average": 33.3, "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:10Z"}
        for qos in (0, 1):
            wire.publish("alerts/a/b", json.dumps(alert).encode(), qos=qos)
        until(field, lambda: field.watch.count == 2)
    assert field.watch.last[0].topic == "alerts/a/b"
    assert field.watch.last[1].average == 33.3
    field.close()


def test_a_broker_that_is_gone_is_a_problem(broker: BrokerProcess) -> None:
    field = Field(LoadEndpoint(parse_address("mqtt://127.0.0.1:1")), 1)
    field.step(0.05)
    assert "cannot connect" in field.problem
    field.close()


def test_faulty_devices_are_hot_at_first_and_cool_down(broker: BrokerProcess) -> None:
    chance = random.Random(1)
    loop = Loop()
    sound = Device(loop, endpoint(broker), 0, chance)
    faulty = Device(loop, endpoint(broker), FAULTY - 1, chance)
    assert faulty.value(0, 0) > 30
    assert faulty.value(PERIOD / 2, 0) < 25
    assert all(sound.value(second, 0) < 25 for second in range(100))
    loop.close()
