"""Plugins that change while clients publish: no message is lost, no connection dropped, no half change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from vmq_hooks import Plugin, hook

from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, publish_packet
from tests.vmq.plugins.support import TIMEOUT, options, peer_of, serving
from vmq.plugins.manager import PluginError

CODE = """
import asyncio
from vmq_hooks import Plugin, hook

class Stamp(Plugin):
    def start(self, broker, config):
        {start}
        self.counter = broker.counter("stamps", "Stamped messages.")

    @hook
    async def auth_on_publish(self, message):
        await asyncio.sleep(0)
        self.counter.add()
        return {{"payload": message.payload + b"{mark}"}}
"""


def write(file: Path, mark: str, start: str = "pass") -> None:
    file.write_text(CODE.format(mark=mark, start=start), encoding="utf-8")


async def test_code_is_swapped_under_traffic(tmp_path: Path) -> None:
    file = tmp_path / "stamp.py"
    write(file, "1")
    sections = {"stamp": options(path=str(file))}
    async with (
        serving(tmp_path, sections=sections) as broker,
        broker.subscribe("a", qos=1, limit=10_000) as messages,
        peer_of(broker) as peer,
    ):
        await peer.connect("c")
        count = 0

        async def publish(number: int) -> None:
            nonlocal count
            for _ in range(number):
                peer.send(publish_packet("a", b"%d-" % count, qos=1, packet_id=count % 999 + 1))
                count += 1
            await peer.writer.drain()

        await publish(50)
        async with asyncio.timeout(TIMEOUT):
            found = [(await anext(messages)).payload]
        for mark in "234":
            write(file, mark)
            await asyncio.gather(broker.plugins.reload("stamp"), publish(50))
        write(file, "5", start="raise OSError('no')")
        with pytest.raises(PluginError, match="cannot start: no"):
            await broker.plugins.reload("stamp")
        write(file, "broken(")
        await publish(20)
        async with asyncio.timeout(TIMEOUT):
            found += [(await anext(messages)).payload for _ in range(count - 1)]
            for number in range(count):
                acknowledgement = await peer.packet()
                assert acknowledgement.packet_id == number % 999 + 1
        assert [int(each.split(b"-")[0]) for each in found] == list(range(count))
        marks = [each.split(b"-")[1] for each in found]
        assert marks == sorted(marks)
        assert set(marks) >= {b"1", b"4"}
        assert broker.plugins.counters["stamp"].get("stamps", "", None).value == count


async def test_a_new_configuration_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "stamp.py"
    write(file, "1")
    section = options(path=str(file))
    async with serving(tmp_path, sections={"stamp": section}) as broker, peer_of(broker) as peer:
        await peer.connect("c")

        async def follow(**sections: object) -> list[str]:
            return await broker.plugins.take_over(sections, {})  # type: ignore[arg-type]

        assert await follow() == []
        assert list(broker.plugins.loaded) == []
        assert await follow(stamp=section) == []
        assert list(broker.plugins.loaded) == ["stamp"]
        first = broker.plugins.loaded["stamp"]
        assert await follow(stamp=section) == []
        assert broker.plugins.loaded["stamp"] is first, "nothing changed"
        other = msgspec.structs.replace(section, priority=4)
        assert await follow(stamp=other) == []
        assert broker.plugins.loaded["stamp"].options.priority == 4
        wrong = msgspec.structs.replace(section, own_options={"colour": "red"})
        (problem,) = await follow(stamp=wrong)
        assert "plugins.stamp.colour" in problem
        assert broker.plugins.loaded["stamp"].options.priority == 4, "the old one goes on"
        peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
        await peer.expect(PINGRESP_BYTES)


async def test_plugins_are_told_of_options_that_changed(tmp_path: Path) -> None:
    told: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    class Told(Plugin):
        @hook
        def on_config_change(self, changed: dict[str, object]) -> None:
            told.put_nowait(changed)

    async with serving(tmp_path, {"told": Told()}) as broker:
        queue = msgspec.structs.replace(broker.config.queue, max_online_messages=7)
        broker.reload(msgspec.structs.replace(broker.config, queue=queue))
        async with asyncio.timeout(TIMEOUT):
            assert await told.get() == {"queue.max_online_messages": 7}
