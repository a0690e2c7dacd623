"""QoS 2 in a log with copies, when the publisher's node dies, or is left, before it has answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.support.wire import PUBREC
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House, house
from tests.vmq.clustering.raft.replicas import groups, is_led, leader, payloads
from tests.vmq.clustering.running.slotted import SLOTS, are_owned, owners_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.raft.dotted import DottedProducer, DottedRow


@asynccontextmanager
async def logged(folder: Path, **given: Any) -> AsyncIterator[House]:
    """Three nodes with a stream `s` of three copies."""
    made = options(**{"filters": ["s/#"], "replicas": 3, "acks": "quorum", **given})
    async with house(folder, slots=SLOTS, streams={"s": made}) as nodes:
        await until(lambda: all(is_led(each) for each in nodes.brokers.values()))
        await until(lambda: are_owned(nodes))
        yield nodes


def names(nodes: House) -> list[str]:
    """The leader, and two others."""
    first = leader(nodes["a"])
    return [first, *(each for each in "abc" if each != first)]


@asynccontextmanager
async def publishing(folder: Path) -> AsyncIterator[tuple[House, Device, str, str]]:
    """The same, with a publisher at a node that does not lead, and a third node."""
    async with logged(folder) as nodes, Device("publisher") as publisher:
        _, here, there = names(nodes)
        await publisher.connect(nodes[here])
        yield nodes, publisher, here, there


async def lose_answers(device: Device, *texts: str, has_dup: bool = True) -> None:
    """It publishes at QoS 2, is answered, and does not hear of it."""
    device.answers = False
    for text in texts:
        device.publish("s/1", text, 2)
    await device.until(lambda: len(device.found(PUBREC)) == len(texts))
    for number, text in enumerate(texts, 1):
        device.unfinished[number] = device.again(number, "s/1", text, has_dup=has_dup)
    device.answers = True


async def finish(device: Device) -> None:
    """Everything that it has published is acknowledged, and one message more."""
    await device.until(lambda: not device.unfinished)
    device.publish("s/1", "end", 2)
    await device.until(lambda: not device.unfinished)


async def has(nodes: House, name: str, *wanted: str) -> None:
    """What readers see."""
    await until(lambda: payloads(nodes[name])[-1:] == [b"end"])
    assert payloads(nodes[name]) == [each.encode() for each in wanted]


def dotted(nodes: House, name: str, stream: str = "s") -> DottedProducer:
    found = groups(nodes[name]).roads.dotted(stream, 0)
    assert found is not None
    return found


async def comes_to(publisher: Device, node: Broker) -> None:
    """Its session is there, and it publishes there what was not answered, and one message more."""
    assert await publisher.connect(node)
    await finish(publisher)


async def test_what_was_committed_before_its_node_died_is_there_once(tmp_path: Path) -> None:
    """It led, besides."""
    async with logged(tmp_path) as nodes, Device("publisher") as publisher:
        here, _, there = names(nodes)
        await publisher.connect(nodes[here])
        await lose_answers(publisher, "1", "2")
        await nodes.kill(here)
        await comes_to(publisher, nodes[there])
        await has(nodes, there, "1", "2", "end")


async def test_what_comes_again_without_dup_is_there_once_while_no_node_is_missing(
    tmp_path: Path,
) -> None:
    """As of a client that sends PUBLISH again after PUBREC; until PUBREL it is no other one [MQTT-4.3.3-2]."""
    async with publishing(tmp_path) as (nodes, publisher, here, there):
        await lose_answers(publisher, "1", "2", has_dup=False)
        await nodes.kill(here)
        await nodes.start(here)
        await until(
            lambda: any(each.has_all_forks() for each in owners_of(nodes, "publisher").values())
        )
        await comes_to(publisher, nodes[there])
        await has(nodes, there, "1", "2", "end")


async def test_what_a_node_hands_in_late_that_its_client_has_left_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing(tmp_path) as (nodes, publisher, here, there):
        with monkeypatch.context() as patch:
            patch.setattr(groups(nodes[here]).roads, "hand_in", lambda *_: False)
            publisher.publish("s/1", "1", 2)
            publisher.publish("s/1", "2", 2)
            await until(lambda: dotted(nodes, here).waiting == 2)
            for number in (1, 2):
                publisher.unfinished[number] = publisher.again(number, "s/1", str(number))
            await comes_to(publisher, nodes[there])
            await has(nodes, there, "1", "2", "end")
        await until(lambda: not dotted(nodes, here).waiting)
        await has(nodes, there, "1", "2", "end")


async def test_another_message_under_its_packet_id_is_another_row(tmp_path: Path) -> None:
    async with publishing(tmp_path) as (nodes, publisher, here, there):
        await lose_answers(publisher, "1")
        publisher.unfinished[1] = publisher.again(1, "s/1", "other")
        await nodes.kill(here)
        await comes_to(publisher, nodes[there])
        await has(nodes, there, "1", "other", "end")


async def test_a_stream_that_is_deleted_meanwhile_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged(tmp_path) as nodes, Device("publisher") as publisher:
        roads, catalog = groups(nodes["a"]).roads, streams_of(nodes["a"]).catalog
        await catalog.create("m", options(filters=["m/#"], replicas=3, acks="quorum"))
        await until(lambda: groups(nodes["a"]).places.leader("m", 0) != "")
        await publisher.connect(nodes["a"])
        monkeypatch.setattr(roads, "hand_in", lambda *_: False)
        publisher.publish("m/1", "1", 2)
        await until(lambda: dotted(nodes, "a", "m").waiting == 1)
        catalog.delete("m")
        await publisher.until(lambda: not publisher.unfinished)
        assert not roads.backlog.size
        found: list[str] = []
        row = DottedRow(b"m/1", b"1", 2, False, "publisher", 0)
        roads.add_row("m\0000\0a\0001", 1, row, None, partial(found.append, "gone"))
        assert found == ["gone"]


@pytest.mark.parametrize("given", [{"acks": "none"}, {"without_quorum": "keep"}])
async def test_rows_that_are_acknowledged_without_a_quorum_have_no_dots(
    tmp_path: Path, given: dict[str, str]
) -> None:
    async with logged(tmp_path, **given) as nodes, Device("publisher") as publisher:
        await publisher.connect(nodes["a"])
        await finish(publisher)
        await has(nodes, "a", "end")
        assert not groups(nodes["a"]).roads._dotted
