"""What the handle of a running broker gives a plugin."""

import asyncio
import contextlib
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Broker, Message, Plugin, SubscriberId
from vmq_hooks.testing import FakeBroker

from tests.support import wire as mqtt
from tests.support.present import present
from tests.vmq.plugins.doors import Doors
from tests.vmq.plugins.support import TIMEOUT, serving
from tests.vmq.sockets import session_of


async def test_what_the_handle_gives(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        handle: Broker | None = broker.plugins.loaded["doors"].handle
        assert handle is not None
        assert handle.data_dir == tmp_path / "data" / "plugins" / "doors"
        assert handle.data_dir.is_dir()
        handle.counter("hits", "Hits.").add(3)
        assert {(each.name, each.value) for each in handle.metrics()} >= {("vmq_plugin_hits", 3)}
        async with handle.subscribe("a", qos=1) as messages:
            await handle.publish("a", b"x", qos=1)
            assert await anext(messages) == Message("a", b"x", 1)
        async with session_of(broker, clean=False) as peer:
            assert await handle.disconnect(SubscriberId("c"), cleanup=True)
            assert await peer.rest() == b""
        assert not await handle.disconnect(SubscriberId("c"))
        assert await handle.run_in_thread(sum, [1, 2]) == 3
        handle.set_problem("accounts", "it does not answer")
        assert broker.plugins.statuses()[0].problem == "it does not answer"
        assert broker.health() == [
            "plugin doors has a problem with accounts; vmq plugin list says which"
        ]
        handle.set_problem("accounts", "")
        assert broker.health() == []


async def test_a_durable_subscription_gets_again_what_was_not_asked_past(tmp_path: Path) -> None:
    async with serving(tmp_path, {"doors": Doors()}) as broker:
        handle = present(broker.plugins.loaded["doors"].handle)

        async def take(count: int) -> list[bytes]:
            async with handle.subscribe(
                "a", qos=1, client_id="bridge", clean_session=False
            ) as messages:
                async with asyncio.timeout(TIMEOUT):
                    return [(await anext(messages)).payload for _ in range(count)]

        async with handle.subscribe("a", qos=1, client_id="bridge", clean_session=False):
            pass
        for number in range(3):
            await handle.publish("a", b"%d" % number, qos=1)
        assert await take(2) == [b"0", b"1"]
        assert await take(2) == [b"1", b"2"]


async def test_a_task_that_will_not_be_cancelled_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmq.plugins.handle.STOP_TIMEOUT", 0.01)
    gate = asyncio.Event()

    async def stubborn() -> None:
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    async with serving(tmp_path, {"doors": Doors()}) as broker:
        handle = present(broker.plugins.loaded["doors"].handle)
        task = handle.spawn(stubborn(), "stubborn")
        await asyncio.sleep(0)  # it has begun: a task that has not is cancelled all the same
        await broker.plugins.disable("doors")
        assert not task.done()
        gate.set()
        await task
    assert "a task of plugin doors does not end: stubborn" in caplog.messages


async def test_what_is_asked_for_amiss_is_told_at_once_and_files_are_read_by_plain_functions(
    tmp_path: Path,
) -> None:
    read: list[object] = []
    no_coroutine: Any = len
    async with serving(tmp_path, {"doors": Doors()}) as broker, FakeBroker(tmp_path) as fake:
        handle = present(broker.plugins.loaded["doors"].handle)
        for each in (handle, fake):
            for ask in (each.disconnect_users, each.drop_wills):
                with pytest.raises(TypeError, match="'bob' is one user name"):
                    await ask("bob")
            with pytest.raises(TypeError, match="coroutine"):
                each.spawn(no_coroutine)
            each.on_reload(partial(read.append, each))
        await handle.reread()
        await fake.reload()
    assert read == [handle, fake]


async def test_threads_that_hang_hold_up_their_plugin_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmq.plugins.handle.THREAD_REST", 0.01)
    over = threading.Event()
    async with serving(tmp_path, {"doors": Doors(), "other": Plugin()}) as broker:
        handle, other = (present(broker.plugins.loaded[name].handle) for name in ("doors", "other"))
        calls = [asyncio.create_task(handle.run_in_thread(over.wait)) for _ in range(40)]
        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT):
            # The store's commits are made in threads, too.
            async with session_of(broker, clean=False) as peer:
                await peer.ask(mqtt.subscribe_packet(1, ("a", 1)))
            assert await other.run_in_thread(sum, [1, 2]) == 3
            with pytest.raises(RuntimeError, match="StopIteration"):
                await other.run_in_thread(next, iter(()))
            await broker.plugins.disable("doors")
        assert "a thread of plugin doors does not end" in caplog.messages
        assert not any(each.done() for each in calls)
        over.set()
        assert await asyncio.gather(*calls) == [True] * 40
