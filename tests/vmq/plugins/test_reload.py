"""Plugins that change while clients publish: no message is lost, no connection dropped, no half change."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest
from vmq_hooks import Plugin, hook

from tests.support.until import until
from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, publish_packet
from tests.vmq.plugins.support import TIMEOUT, options, serving
from tests.vmq.sockets import session_of
from vmq.plugins.starting import PluginError

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


def put(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def write(file: Path, mark: str, start: str = "pass") -> None:
    put(file, CODE.format(mark=mark, start=start))


@pytest.fixture
def stamp(tmp_path: Path) -> Path:
    """The file of the plugin, whose mark is 1."""
    file = tmp_path / "stamp.py"
    write(file, "1")
    return file


async def test_code_is_swapped_under_traffic(stamp: Path) -> None:
    sections = {"stamp": options(path=str(stamp))}
    async with (
        serving(stamp.parent, sections=sections) as broker,
        broker.subscribe("a", qos=1, limit=10_000) as messages,
        session_of(broker, "c") as peer,
    ):
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
            write(stamp, mark)
            await asyncio.gather(broker.plugins.reload("stamp"), publish(50))
        write(stamp, "5", start="raise OSError('no')")
        with pytest.raises(PluginError, match="cannot start: no"):
            await broker.plugins.reload("stamp")
        write(stamp, "broken(")
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


async def test_a_new_configuration_is_followed(
    stamp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = options(path=str(stamp))
    sections = {"stamp": section}
    async with serving(stamp.parent, sections=sections) as broker, session_of(broker, "c") as peer:

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
        told = [each.message for each in caplog.records if each.levelno == logging.ERROR]
        assert told == [f"plugin not reloaded, the old code goes on: {problem}"]
        _, problem = await follow(stamp=wrong, other=wrong)
        assert caplog.messages[-1] == f"plugin not started: {problem}"
        assert broker.plugins.loaded["stamp"].options.priority == 4, "the old one goes on"
        peer.send(publish_packet("a", b"x"), PINGREQ_BYTES)
        await peer.expect(PINGRESP_BYTES)


async def test_nothing_that_protects_is_stopped_while_what_is_to_replace_it_does_not_start(
    tmp_path: Path,
) -> None:
    for name in ("old", "new"):
        write(tmp_path / f"{name}.py", name)
    old, new = (options(path=str(tmp_path / f"{name}.py")) for name in ("old", "new"))
    wrong = msgspec.structs.replace(new, own_options={"colour": "red"})
    off = msgspec.structs.replace(old, enabled=False)
    async with serving(tmp_path, sections={"old": old}) as broker:
        plugins = broker.plugins
        for sections in ({"new": wrong}, {"new": wrong}, {"new": wrong, "old": off}):
            problems = await plugins.take_over(sections, {})
            assert len(problems) == 2
            assert "plugin old goes on" in problems[1]
            assert list(plugins.loaded) == ["old"]
            told = {each.name: each.problem for each in plugins.statuses()}
            assert "plugins.new.colour" in told["new"]
            assert "goes on" in told["old"]
            assert len([each for each in broker.health() if "as the configuration" in each]) == 2
        # What an operator has started, and what the file adds switched off, is nobody's replacement.
        await plugins.take_over({"old": old, "idle": off}, {})
        await plugins.enable("idle")
        sections = {"old": old, "idle": off, "new": wrong, "added": off}
        assert len(await plugins.take_over(sections, {})) == 1
        assert await plugins.take_over({**sections, "new": new}, {}) == []
        assert sorted(plugins.loaded) == ["idle", "new", "old"]
        assert await plugins.take_over({"new": new}, {}) == []
        assert list(plugins.loaded) == ["new"]
        assert broker.health() == []
        assert plugins.problems == {}


async def test_the_audit_log_says_which_plugin_does_not_go_by_the_configuration(
    stamp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    section = options(path=str(stamp))
    async with serving(stamp.parent, sections={"stamp": section}) as broker:
        wrong = msgspec.structs.replace(section, own_options={"colour": "red"})
        broker.reload(msgspec.structs.replace(broker.config, plugins={"stamp": wrong}))
        await until(lambda: 'configuration not followed reason="plugins.stamp' in caplog.text)
        told = [each for each in caplog.records if "not followed" in each.message]
        assert [each.name for each in told] == ["vmq.audit"]


async def test_an_installed_plugin_that_was_enabled_runs_until_it_is_disabled(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        plugins = broker.plugins
        await plugins.enable("vmq_systree")
        for sections in ({}, {"vmq_systree": options()}, {}):
            assert await plugins.take_over(sections, {}) == []
            assert list(plugins.loaded) == ([] if plugins.sections == {} else ["vmq_systree"])
        await plugins.enable("vmq_systree")
        await plugins.disable("vmq_systree")
        assert await plugins.take_over({}, {}) == []
        assert plugins.sections == {}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_code_that_ends_the_program_ends_itself(
    stamp: Path, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    async with serving(stamp.parent, sections={"stamp": options(path=str(stamp))}) as broker:
        write(stamp, "2", start=f"raise {error.__name__}")
        with pytest.raises(PluginError, match="cannot start"):
            await broker.plugins.reload("stamp")
        put(stamp, f"raise {error.__name__}")
        with pytest.raises(PluginError, match=error.__name__):
            await broker.plugins.reload("stamp")
        handle = broker.plugins.loaded["stamp"].handle
        assert handle is not None

        async def ends() -> None:
            raise error

        await asyncio.wait([handle.spawn(ends())])
        await until(lambda: "a task of plugin stamp failed" in caplog.text)


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


GUARDS = """
from vmq_hooks import Plugin, hook

class Guards(Plugin):
    @hook
    def {name}(self):
        return True

    @hook
    def on_publish(self): ...
"""


async def test_new_code_that_protects_less_is_refused_unless_it_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "guards.py"
    file.write_text(GUARDS.format(name="auth_on_publish"))
    sections = {"guards": options(path=str(file))}
    async with serving(tmp_path, sections=sections) as broker:
        before = broker.plugins.loaded["guards"]
        file.write_text(GUARDS.format(name="on_client_gone"))
        with pytest.raises(PluginError, match="serves auth_on_publish no more"):
            await broker.plugins.reload("guards")
        assert broker.plugins.loaded["guards"] is before
        assert broker.plugins.guards["guards"] is before.guard
        assert (
            "plugin not reloaded, the old code goes on: plugin guards: the new code" in caplog.text
        )
        (opened,) = await broker.plugins.reload("guards", force=True)
        assert (
            opened == "no plugin is asked about publishing: every client may publish to every topic"
        )
        assert opened in caplog.messages
        assert list(broker.plugins.loaded["guards"].steps) == ["on_client_gone", "on_publish"]


async def test_a_plugin_that_goes_tells_what_everybody_may_do_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Other(Plugin):
        @hook
        def auth_on_subscribe(self) -> bool:
            return True

    class One(Other):
        @hook
        def auth_on_register(self) -> bool:
            return True

    async with serving(tmp_path, {"one": One(), "other": Other()}) as broker:
        (opened,) = await broker.plugins.disable("one")
        assert opened.startswith("no plugin checks who connects")
        assert await broker.plugins.disable("other") == [
            "no plugin is asked about subscribing: every client may subscribe to every topic filter"
        ]
        found = [each.levelname for each in caplog.records if "no plugin" in each.message]
        assert found == ["WARNING", "WARNING"]


async def test_a_reload_that_fails_is_in_the_log_with_the_line(
    stamp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(stamp.parent, sections={"stamp": options(path=str(stamp))}) as broker:
        write(stamp, "2", start="raise OSError('no')")
        with pytest.raises(PluginError):
            await broker.plugins.reload("stamp")
        assert f"plugin stamp cannot start: no ({stamp}:7 in start)" in caplog.messages[-1]
        put(stamp, "import json\n\n\ndef load():\n    json.loads('x')\n\n\nload()\n")
        with pytest.raises(PluginError):
            await broker.plugins.reload("stamp")
        assert "JSONDecodeError" in caplog.messages[-1]
        assert f"({stamp}:5 in load)" in caplog.messages[-1]
        write(stamp, 'broken("')
        with pytest.raises(PluginError, match=r"SyntaxError: .* \(.*stamp.py:14\)") as caught:
            await broker.plugins.reload("stamp")
        (row,) = broker.plugins.statuses()
        assert (row.status, row.problem) == ("running", str(caught.value))
        (line,) = broker.health()
        assert line.startswith("plugin stamp could not be reloaded, its old code goes on")
        write(stamp, "2")
        await broker.plugins.reload("stamp")
        assert broker.plugins.statuses()[0].problem == ""
        assert broker.health() == []


async def test_a_start_that_hangs_is_told_with_where_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.plugins.starting.TELL_AFTER", 0)

    class Hangs(Plugin):
        async def start(self, broker: object, config: object) -> None:
            await until(lambda: "is still starting" in caplog.text)

    async with serving(tmp_path, {"hangs": Hangs()}):
        line = next(each for each in caplog.messages if "is still starting" in each)
        assert line.partition(" (")[2].startswith(f"{until.__code__.co_filename}:")
        assert " in until); it has 30 s" in line
