"""Plugins in a running broker: how they come, change and go, and that errors stay with the plugin."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Broker, Message, Plugin, Refuse, Subscription, hook
from vmq_hooks.breaker import State
from vmq_hooks.deadline import off_the_clock

from tests.support import wire as mqtt
from tests.support.present import present
from tests.support.until import until
from tests.vmq.plugins.doors import Doors, Later
from tests.vmq.plugins.support import TIMEOUT, options, serving
from tests.vmq.sockets import login, session_of
from vmq.broker import StartError
from vmq.plugins.starting import PluginError

# --- one bad plugin harms its own verdicts only


async def test_a_failing_notice_harms_nobody_and_opens_its_breaker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Plugin):
        @hook
        def on_publish(self) -> None:
            raise OSError("broken")

    class Counts(Plugin):
        count = 0

        @hook
        def on_publish(self) -> None:
            self.count += 1

    counts = Counts()
    sections = {"broken": options(breaker_failures=3)}
    async with serving(tmp_path, {"broken": Broken(), "counts": counts}, sections) as broker:
        async with session_of(broker, "c") as peer:
            peer.send(*[mqtt.publish_packet("a", b"x")] * 5, mqtt.PINGREQ_BYTES)
            await peer.expect(mqtt.PINGRESP_BYTES)
        assert broker.health() == [
            "plugin broken fails (see the log): it is left out until a call goes well"
        ]
        guard = broker.plugins.guards["broken"]
        assert guard.errors == {"on_publish": 3}
        assert guard.skipped == {"on_publish": 2}
        await broker.plugins.disable("broken")
        assert guard.state is State.CLOSED, "in the figures, too"
    assert counts.count == 5
    (line,) = [each.message for each in caplog.records if "hook failed" in each.message]
    assert "plugin=broken hook=on_publish" in line
    caplog.clear()


async def test_async_notices_come_in_order(tmp_path: Path) -> None:
    class Slow(Plugin):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        @hook
        async def on_publish(self, message: Message) -> None:
            await asyncio.sleep(0)
            self.seen.append(message.payload)

    slow = Slow()
    async with serving(tmp_path, {"slow": slow}) as broker, session_of(broker, "c") as peer:
        peer.send(
            *(mqtt.publish_packet("a", b"%d" % number) for number in range(50)), mqtt.PINGREQ_BYTES
        )
        await peer.expect(mqtt.PINGRESP_BYTES)
        await broker.plugins.disable("slow")
    assert slow.seen == [b"%d" % number for number in range(50)]


# --- life


async def test_a_plugin_that_cannot_start_stops_the_start(tmp_path: Path) -> None:
    class Fails(Plugin):
        def start(self, broker: Broker, config: Any) -> None:
            raise OSError("no database")

    with pytest.raises(StartError, match="plugin fails cannot start: no database"):
        async with serving(tmp_path, {"fails": Fails()}):
            pass


async def test_changes_that_cannot_be_made_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        with pytest.raises(PluginError, match="runs already"):
            await broker.plugins.enable("doors")
        with pytest.raises(PluginError, match="made by the program"):
            await broker.plugins.reload("doors")
        with pytest.raises(PluginError, match="does not run"):
            await broker.plugins.reload("other")
        with pytest.raises(PluginError, match=r"no \[plugins.other\].*SIGHUP"):
            await broker.plugins.enable("other")


async def test_a_session_restored_from_disk_is_asked_about_as_its_user_s(tmp_path: Path) -> None:
    users: list[str | None] = []

    def judge(user: str | None, _who: Any, wanted: list[Subscription]) -> Any:
        users.append(user)
        return Refuse("no more") if len(users) > 1 else True

    doors = Doors(auth_on_subscribe=judge)
    async with (
        serving(tmp_path, {"doors": doors}) as broker,
        session_of(broker, "c", clean=False, username="u") as peer,
    ):
        peer.send(mqtt.subscribe_packet(1, ("a", 1)), b"\xe0\0")
        await peer.expect(b"\x90\x03\0\1\1")
    async with serving(tmp_path, {"doors": doors}) as broker:
        handle = present(broker.plugins.loaded["doors"].handle)
        assert await handle.reauthorize() == 1
        assert list(broker.registry().subscribers["c"].subscriptions) == []
    assert users == ["u", "u"]


async def test_a_plugin_answers_what_it_was_asked_before_it_is_stopped(tmp_path: Path) -> None:
    steps: list[str] = []

    class Orderly(Later):
        @hook
        async def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
            steps.append("asked")
            await self.gate.wait()
            steps.append("answered")
            return True

        def stop(self) -> None:
            steps.append("stopped")

    plugin = Orderly()
    async with serving(tmp_path, {"orderly": plugin}) as broker, session_of(broker, "c") as peer:
        peer.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
        guard = broker.plugins.guards["orderly"]
        async with asyncio.timeout(TIMEOUT):
            await until(lambda: "asked" in steps)
            disabling = asyncio.create_task(broker.plugins.disable("orderly"))
            await until(lambda: "orderly" not in broker.plugins.loaded)
            for _ in range(5):
                await asyncio.sleep(0)
            assert guard.under_way == 1
            plugin.gate.set()
            await disabling
        await peer.expect(mqtt.PINGRESP_BYTES)
    assert steps == ["asked", "answered", "stopped"]


@pytest.mark.parametrize("in_line", (False, True))
async def test_a_plugin_is_not_stopped_while_one_in_front_of_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_line: bool
) -> None:
    monkeypatch.setattr("vmq.plugins.starting.GRACE", 0.01)
    gate = asyncio.Event()
    steps: list[str] = []

    class First(Plugin):
        @hook
        async def auth_on_publish(self) -> None:
            with off_the_clock() if in_line else contextlib.nullcontext():
                await gate.wait()

    class Last(Plugin):
        @hook
        def auth_on_publish(self) -> bool:
            steps.append("asked")
            return True

        def stop(self) -> None:
            steps.append("stopped")

    sections = {"first": options(deadline=0.1 if in_line else 60), "last": options(deadline=0.01)}
    async with (
        serving(tmp_path, {"first": First(), "last": Last()}, sections) as broker,
        session_of(broker, "c") as peer,
    ):
        peer.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
        await until(lambda: broker.plugins.guards["first"].under_way)
        disabling = asyncio.create_task(broker.plugins.disable("last"))
        # Longer than what is disabled has; who stands in line has no end, and finds it gone.
        await asyncio.wait({disabling}, timeout=None if in_line else 0.2)
        gate.set()
        await peer.expect(mqtt.PINGRESP_BYTES)
        await disabling
    assert steps == (["stopped"] if in_line else ["asked", "stopped"])


class Stubborn(Plugin):
    """Takes no cancellation before its test is over."""

    def __init__(self, *, starts: bool = True) -> None:
        self.over = asyncio.Event()
        self.starts = starts

    async def insist(self) -> bool:
        while not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()
        return True

    async def start(self, broker: Broker, config: Any) -> None:
        if not self.starts:
            await self.insist()

    async def stop(self) -> None:
        await self.insist()

    @hook
    async def auth_on_register(self) -> bool:
        return await self.insist()

    @hook
    async def on_message_drop(self) -> None:
        await self.insist()

    @hook
    async def discover_nodes(self) -> None:
        await self.insist()


async def test_code_that_will_not_be_cancelled_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plugin, slow = Stubborn(), Stubborn(starts=False)
    sections = {"stubborn": options(deadline=0.01, breaker_failures=0)}
    async with serving(tmp_path, {"stubborn": plugin}, sections, anonymous=False) as broker:
        assert await login(broker) == 3
        assert await broker.plugins.only("discover_nodes") is None
        told = present(broker.plugins.loaded["stubborn"].steps["on_message_drop"])
        broker.plugins.loaded["stubborn"].notices.put(told, ())
        for name in ("starting.STOP_TIMEOUT", "starting.START_TIMEOUT", "guard.GRACE"):
            monkeypatch.setattr(f"vmq.plugins.{name}", 0.01)
        with pytest.raises(PluginError, match="has not started within"):
            await broker.plugins.add("slow", slow)
        await broker.plugins.disable("stubborn")
        for each in ("auth_on_register", "discover_nodes", "on_message_drop"):
            line = f'plugin=stubborn hook={each} error="it was cancelled and does not end; it is left behind"'
            assert line in caplog.text
        assert "plugin stubborn: stop has not ended within 0.01 s" in caplog.text
        assert f"({__file__}:" in caplog.text
        for one in (plugin, slow):
            one.over.set()
