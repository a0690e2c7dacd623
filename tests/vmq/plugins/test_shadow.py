"""New code that is tried beside the old, on live traffic: without effect, compared, and committed as it was tried."""

import asyncio
from pathlib import Path

import pytest

from tests.support.until import until
from tests.support.wire import PINGREQ_BYTES, publish_packet, subscribe_packet
from tests.vmq.plugins.support import TIMEOUT, options, serving
from tests.vmq.sockets import session_of
from vmq.broker import Broker
from vmq.plugins.shadow import UNDER_WAY
from vmq.plugins.starting import PluginError

OLD = """
from vmq_hooks import Plugin, Refuse, hook

class Rooms(Plugin):
    def start(self, broker, config):
        self.counter = broker.counter("asked", "Calls.")

    @hook
    def auth_on_publish(self, message):
        self.counter.add()
        return True if message.topic != "no" else Refuse("old says no")

    @hook
    async def auth_on_subscribe(self, subscriptions):
        return True

    @hook
    def on_publish(self, message): ...
"""

NEW = """
import asyncio
from vmq_hooks import Plugin, Refuse, hook

class Rooms(Plugin):
    def start(self, broker, config):
        self.broker = broker
        self.counter = broker.counter("asked", "Calls.")

    @hook
    async def auth_on_publish(self, subscriber_id, message):
        await asyncio.sleep(0)
        self.counter.add(100)
        await self.broker.publish("leak", b"x")
        assert not await self.broker.disconnect(subscriber_id)
        if message.topic == "raise":
            raise ValueError("new is broken")
        return True if message.topic != "yes" else Refuse("new says no")

    @hook
    def auth_on_subscribe(self, subscriptions):
        return Refuse("new refuses")
"""


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


async def traffic(broker: Broker) -> None:
    """Four publishes and a subscription of client c; the connection stays."""
    async with session_of(broker, "c") as peer, asyncio.timeout(TIMEOUT):
        for number, topic in enumerate(("yes", "yes", "also", "raise"), 1):
            await peer.ask(publish_packet(topic, b"x", qos=1, packet_id=number))
        await peer.ask(subscribe_packet(9, ("f", 0)))
        await peer.ask(PINGREQ_BYTES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rooms.py"
    path.write_text(OLD)
    return path


async def test_answers_are_compared_and_nothing_is_done(tmp_path: Path, file: Path) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        write(file, NEW)
        tried = await broker.plugins.shadow("rooms", 60)
        async with broker.subscribe("leak") as leaks:
            await traffic(broker)
            await until(lambda: tried.report().asked == 5)
            await broker.publish("leak", b"end")
            assert (await anext(leaks)).payload == b"end"
        report = tried.report()
        assert report.running
        found = {
            (each.hook, each.about): (each.old, each.new, each.times) for each in report.differences
        }
        assert found == {
            ("auth_on_publish", "yes qos=1"): ("accept", "refuse: new says no", 2),
            ("auth_on_publish", "raise qos=1"): (
                "accept",
                "refuse: plugin rooms failed in auth_on_publish",
                1,
            ),
            ("auth_on_subscribe", "f"): ("accept", "refuse: new refuses", 1),
        }
        assert report.failures == 1
        assert {each.client_id for each in report.differences} == {"c"}
        assert broker.plugins.counters["rooms"].get("asked", "", None).value == 4
        assert broker.plugins.guards["rooms"].errors.total() == 0


async def test_the_code_that_was_tried_is_committed_not_what_the_file_holds_by_then(
    tmp_path: Path, file: Path
) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        with pytest.raises(PluginError, match="no other code"):
            await broker.plugins.reload("rooms", commit=True)
        write(file, OLD.replace('!= "no"', '!= "tried"'))
        await broker.plugins.shadow("rooms", 60)
        write(file, "1 / 0")
        await broker.plugins.reload("rooms", commit=True)
        async with session_of(broker, "c") as peer, asyncio.timeout(TIMEOUT):
            assert (await peer.ask(publish_packet("no", b"x", qos=1, packet_id=1))).packet_id == 1
            peer.send(publish_packet("tried", b"x", qos=1, packet_id=2))
            assert await peer.rest() == b""
        with pytest.raises(PluginError, match="no other code"):
            broker.plugins.tried("rooms")


async def test_its_time_ends_and_what_was_found_stays(tmp_path: Path, file: Path) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        write(file, NEW)
        tried = await broker.plugins.shadow("rooms", 0.05)
        await until(lambda: not tried.is_running)
        asked = tried.report().asked
        await traffic(broker)
        assert tried.report().asked == asked
        assert broker.plugins.tried("rooms") is tried
        assert (
            type(broker.plugins.loaded["rooms"].steps["auth_on_publish"]).__name__ == "VerdictStep"
        )


async def test_code_that_does_not_start_leaves_everything_as_it_was(
    tmp_path: Path, file: Path
) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        for text in ("1 / 0", OLD.replace("self.counter =", "1 / 0 #")):
            write(file, text)
            with pytest.raises(PluginError, match="ZeroDivisionError"):
                await broker.plugins.shadow("rooms", 60)
        await traffic(broker)
        with pytest.raises(PluginError, match="does not run"):
            await broker.plugins.shadow("other", 60)


async def test_calls_beyond_what_it_can_answer_are_left_out_and_counted(
    tmp_path: Path, file: Path
) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        write(file, NEW.replace("asyncio.sleep(0)", "asyncio.Event().wait()"))
        tried = await broker.plugins.shadow("rooms", 60)
        async with session_of(broker, "c") as peer, asyncio.timeout(TIMEOUT):
            for number in range(1, UNDER_WAY + 11):
                peer.send(publish_packet("t", b"x", qos=1, packet_id=number))
            for _ in range(UNDER_WAY + 10):
                await peer.packet()
            assert tried.report().left_out == 10
            for task in tuple(tried._tasks):
                task.cancel()


async def test_a_hook_that_the_new_code_lacks_is_a_difference(tmp_path: Path, file: Path) -> None:
    sections = {"rooms": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        write(
            file,
            NEW.replace("auth_on_subscribe", "on_client_gone").replace(
                "subscriptions", "subscriber_id"
            ),
        )
        tried = await broker.plugins.shadow("rooms", 60)
        await traffic(broker)
        await until(lambda: tried.report().asked == 5)
        assert ("auth_on_subscribe", "does not serve this hook") in {
            (each.hook, each.new) for each in tried.report().differences
        }
