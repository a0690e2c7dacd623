"""A plugin that a test starts and stops: in plain tests, within a loop, and when it hangs."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks import Broker, Message, Plugin, Refuse, SubscriberId, hook
from vmq_hooks.testing import FakeBroker, LoopThread, started

WHO = {"username": "u", "subscriber_id": SubscriberId("c")}


class Lamps(Plugin):
    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        prefix: str = "lamps/"

    log: list[str]

    def __init__(self) -> None:
        self.log = []

    async def start(self, broker: Broker, config: Config) -> None:
        self.config = config
        self.broker = broker
        self.log.append("start")
        broker.spawn(asyncio.sleep(3600), "for ever")

    async def stop(self) -> None:
        self.log.append("stop")

    @hook
    async def auth_on_publish(self, message: Message) -> object:
        await asyncio.sleep(0)
        return True if message.topic.startswith(self.config.prefix) else Refuse("no lamp")


def test_in_a_plain_test(tmp_path: Path) -> None:
    plugin = Lamps()
    with started(plugin, {"prefix": "l/"}, folder=tmp_path) as lamps:
        verdict = lamps.call("auth_on_publish", **WHO, message=Message("x", b""))
        assert isinstance(verdict, Refuse)
        assert lamps.run(lamps.broker.publish("a", b"1")) is None
    assert plugin.log == ["start", "stop"]
    assert [each.topic for each in lamps.broker.published] == ["a"]
    assert not [each for each in threading.enumerate() if each.name == "vmq_hooks.testing"]


def test_a_class_is_no_plugin(tmp_path: Path) -> None:
    a_class: Any = Lamps
    with pytest.raises(TypeError, match=r"Lamps'> is no plugin"), started(a_class, folder=tmp_path):
        pass


async def test_within_a_running_loop(tmp_path: Path) -> None:
    with started(Lamps(), folder=tmp_path) as lamps:
        assert lamps.call("auth_on_publish", **WHO, message=Message("lamps/1", b""))


def test_options_are_those_of_the_plugin(tmp_path: Path) -> None:
    with (
        pytest.raises(msgspec.ValidationError, match="prefixx"),
        started(Lamps(), {"prefixx": ""}, folder=tmp_path),
    ):
        pass
    with started(Lamps(), Lamps.Config("z/"), folder=tmp_path) as lamps:
        assert lamps.call("auth_on_publish", **WHO, message=Message("z/1", b""))


class Hanging(Plugin):
    def __init__(self, where: str) -> None:
        self.where = where

    async def start(self, broker: Broker, config: object) -> None:
        if self.where == "start":
            await asyncio.Event().wait()

    async def stop(self) -> None:
        if self.where == "stop":
            await asyncio.Event().wait()

    @hook
    async def on_client_gone(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("where", ("start", "stop", "hook"))
def test_it_never_hangs(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(started.__wrapped__.__globals__, "LIMIT", 0.05)  # type: ignore[attr-defined]

    def use() -> None:
        with started(Hanging(where), folder=tmp_path) as plugin:
            if where == "hook":
                plugin.call("on_client_gone", subscriber_id=SubscriberId("c"))

    with pytest.raises(TimeoutError):
        use()
    assert not [each for each in threading.enumerate() if each.name == "vmq_hooks.testing"]


def test_what_spawned_work_raised_fails_the_test(tmp_path: Path) -> None:
    class Broken(Plugin):
        def start(self, broker: Broker, config: object) -> None:
            async def fail() -> None:
                raise ValueError("broken")

            broker.spawn(fail(), "work")

        @hook
        async def on_client_gone(self) -> None:
            await asyncio.sleep(0)

    def use() -> None:
        with started(Broken(), folder=tmp_path) as plugin:
            plugin.call("on_client_gone", subscriber_id=SubscriberId("c"))

    with pytest.raises(BaseExceptionGroup, match="spawned"):
        use()


def test_a_broker_of_the_test_s_own(tmp_path: Path) -> None:
    with closing(LoopThread("mine")) as thread:

        async def make() -> FakeBroker:
            return FakeBroker(tmp_path, node_name="mine")

        broker = thread.run(make())
        with started(Lamps(), folder=tmp_path, broker=broker) as lamps:
            assert lamps.broker.node_name == "mine"


def test_a_loop_that_is_held_goes_on_afterwards() -> None:
    thread = LoopThread("held")
    try:
        with thread.held(), pytest.raises(TimeoutError, match="not done"):
            thread.run(asyncio.sleep(0), 0.01)
        assert thread.run(asyncio.sleep(0, "on")) == "on"
    finally:
        thread.close()
        thread.close()
