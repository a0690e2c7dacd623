"""The plugin's verdicts, and its taking up of a changed file."""

# ruff: noqa: ASYNC240 - files of a test's own folder block nobody

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from vmq_hooks import Peer, Refuse
from vmq_hooks.testing import FakeBroker
from vmq_passwd import PasswdConfig, PasswdPlugin, editing

PEER = Peer("127.0.0.1", 1883)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "passwd"
    editing.add(path, "bob", b"1")
    return path


async def started(broker: FakeBroker, config: PasswdConfig | None = None) -> PasswdPlugin:
    plugin = PasswdPlugin()
    await plugin.start(broker, config or PasswdConfig())
    return plugin


@pytest.mark.usefixtures("path")
class TestVerdicts:
    async def test_of_passwords(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker)
            assert await plugin.auth_on_register(PEER, "bob", b"1") is True
            for name, password, reason in (
                ("bob", b"2", "wrong password"),
                ("bob", None, "wrong password"),
                ("eve", b"1", "unknown user"),
                ("", b"1", "unknown user"),
            ):
                verdict = await plugin.auth_on_register(PEER, name, password)
                assert isinstance(verdict, Refuse)
                assert verdict.bad_credentials
                assert verdict.reason == reason

    async def test_without_a_name_the_next_plugin_is_asked(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            assert await (await started(broker)).auth_on_register(PEER, None, None) is None

    async def test_unknown_users_may_be_the_next_plugins(self, tmp_path: Path) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker, PasswdConfig(unknown_users="next"))
            assert await plugin.auth_on_register(PEER, "eve", b"1") is None
            assert isinstance(await plugin.auth_on_register(PEER, "bob", b"2"), Refuse)

    async def test_a_certificate_stands_for_the_password_if_asked_to(self, tmp_path: Path) -> None:
        peer = Peer("127.0.0.1", 8883, transport="tls", common_name="lamp")
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker)
            assert isinstance(await plugin.auth_on_register(peer, "lamp", None), Refuse)
            plugin = await started(broker, PasswdConfig(accept_certificates=True))
            assert await plugin.auth_on_register(peer, "lamp", None) is True
            assert isinstance(await plugin.auth_on_register(peer, "door", None), Refuse)
            assert await plugin.auth_on_register(peer, None, None) is None

    async def test_who_waits_when_it_is_reloaded_is_told_to_come_again(
        self, tmp_path: Path
    ) -> None:
        async with FakeBroker(tmp_path) as broker:
            plugin = await started(broker, PasswdConfig(threads=1))
            first = asyncio.ensure_future(plugin.auth_on_register(PEER, "bob", b"1"))
            waits = asyncio.ensure_future(plugin.auth_on_register(PEER, "bob", b"2"))
            for _ in range(3):
                await asyncio.sleep(0)
            await plugin.stop()
            verdict = await waits
            assert isinstance(verdict, Refuse)
            assert verdict.unavailable
            assert await first is True


class TestTheFile:
    async def test_a_change_counts_and_a_mistake_does_not(
        self, path: Path, heard: asyncio.Queue[str]
    ) -> None:
        async with FakeBroker(path.parent) as broker, asyncio.timeout(20):
            plugin = await started(broker, PasswdConfig(reload_interval=0.01))
            assert await plugin.auth_on_register(PEER, "bob", b"1") is True
            editing.add(path, "bob", b"3")
            assert "new content is in force" in await heard.get()
            assert await plugin.auth_on_register(PEER, "bob", b"3") is True
            assert isinstance(await plugin.auth_on_register(PEER, "bob", b"1"), Refuse)
            path.write_text("bob:secret\n")
            complaint = await heard.get()
            assert "line 1: user 'bob': no hash of a password" in complaint
            assert "secret" not in complaint
            assert await plugin.auth_on_register(PEER, "bob", b"3") is True

    @pytest.mark.parametrize(
        ("mode", "ended"), [("deleted", [{"eve"}]), ("changed", [{"bob", "eve"}]), ("never", [])]
    )
    async def test_who_is_gone_loses_its_connections(
        self,
        path: Path,
        heard: asyncio.Queue[str],
        mode: Literal["deleted", "changed", "never"],
        ended: list[set[str]],
    ) -> None:
        editing.add(path, "eve", b"2")
        async with FakeBroker(path.parent) as broker, asyncio.timeout(20):
            plugin = await started(broker, PasswdConfig(reload_interval=0.01, end_connections=mode))
            data = path.read_bytes()
            editing.delete(path, "eve")
            editing.add(path, "bob", b"3")
            new = path.read_bytes()
            path.write_bytes(data)
            path.write_bytes(new)  # both changes at once
            assert "new content is in force" in await heard.get()
            await plugin.stop()
            assert broker.disconnected_users == ended
            assert broker.dropped_wills == ([{"eve"}] if mode == "never" else [])

    async def test_a_change_that_nobody_looked_at_counts_when_the_plugin_stops(
        self, path: Path
    ) -> None:
        async with FakeBroker(path.parent) as broker, asyncio.timeout(20):
            plugin = await started(broker, PasswdConfig(reload_interval=0))
            editing.delete(path, "bob")
            await plugin.stop()
            assert broker.disconnected_users == [{"bob"}]
            editing.add(path, "eve", b"2")
            await started(broker)
            assert broker.disconnected_users == [{"bob"}]

    async def test_who_is_deleted_while_the_broker_is_down_is_gone(self, path: Path) -> None:
        async with FakeBroker(path.parent) as broker:
            await started(broker)
            assert oct((broker.data_dir / "users").stat().st_mode)[-3:] == "600"
        editing.delete(path, "bob")
        async with FakeBroker(path.parent) as broker:
            await started(broker)
            assert broker.disconnected_users == [{"bob"}]

    async def test_whoever_is_checked_while_the_file_changes_is_judged_by_the_new_one(
        self, path: Path
    ) -> None:
        class Slow(FakeBroker):
            """The file changes while a password is checked."""

            is_asked = False

            async def run_in_thread(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
                found = await super().run_in_thread(function, *args, **kwargs)
                if self.is_asked and not args and "bob" in path.read_text():
                    editing.delete(path, "bob")
                    plugin._file.load()
                return found

        async with Slow(path.parent) as broker:
            plugin = await started(broker, PasswdConfig(reload_interval=0))
            broker.is_asked = True
            verdict = await plugin.auth_on_register(PEER, "bob", b"1")
            assert isinstance(verdict, Refuse)
            assert verdict.reason == "unknown user"
